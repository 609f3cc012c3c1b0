"""Hours of a shared pool, simulated: what fair shares cost, and what sharing without rules costs."""
