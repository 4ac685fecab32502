"""kbenv as the reward of other people's trainers: one module a trainer, none of which imports it.

Every one keeps the rule that a fault of the machine earns no reward: None where the trainer knows of it, else an
exception; never a zero.
"""
