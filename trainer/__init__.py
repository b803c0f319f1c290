"""The DQN trainer that the stages migrate."""
