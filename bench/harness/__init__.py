"""The benchmark runner: arms, servers under measurement, load, scenarios and the bars they are held to."""
