"""Fair shares of one pool of machines: pure functions of rows and a clock.

Every driver reads the same rows and computes the same shares, so no process has to assign them:

    nodes, owners, claims --fill--> shares --with uses--> may_start, shedding, renewed

`fill` never reads what is running. With fixed claims the shares are therefore constant, and what is running
can only move towards them.
"""
