"""SGLang itself: a released engine with its own scheduler, workers, pools and CUDA graphs, in this process."""
