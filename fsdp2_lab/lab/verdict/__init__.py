"""What a run has come to: how it ended, who failed first, who waited for whom, and how a person is told."""
