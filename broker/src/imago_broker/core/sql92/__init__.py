"""SQL92 filters over message properties, as RocketMQ's brokers evaluate them.

`tokens` reads words, `grammar` makes a tree of them (and refuses what cannot mean anything),
`evaluation` makes a function of the tree once; `filters` puts the three together and keeps what
was compiled. Values have Java's types, since clients' filters were written against those:
`values` converts and compares them.
"""
