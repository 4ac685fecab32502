"""The skills agent: a library of optimisation skills, chosen by features of problem, source and run, and a memory of
what was tried (after KernelSkill's two memories; the library, the roles and their prompts are our own)."""

from kbenv.agents.skills.agent import Skills

__all__ = ["Skills"]
