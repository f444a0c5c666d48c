"""Run and judge one scenario: in lockstep, in this process or in isolated workers."""
