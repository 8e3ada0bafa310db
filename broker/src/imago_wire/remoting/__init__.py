"""The RocketMQ remoting protocol, both directions, as a sans-IO codec.

Bytes become commands in `frame`, their headers in `header`; `command` is the value and makes
requests and answers. `codes` and `peer` name the numbers. `headers` holds the header class of each
code (declared with `fields`, listed in `headers.table`), `bodies` the JSON bodies (declared with
`bodies.fields`, written by `fastjson`). `messages`, `message_ids` and `subscriptions` are what
producers and consumers need; `signing`, `handles`, `trace` and `properties_text` are
what their names say.
"""
