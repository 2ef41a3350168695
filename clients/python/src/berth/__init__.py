"""Client of Berth: generated stubs in `berth.v1`, and what makes them handy."""

from berth.agent import Agent, AgentRun, AgentState, Message, Step, StepResult

__all__ = ["Agent", "AgentRun", "AgentState", "Message", "Step", "StepResult"]
