"""Why Spark's master took no session, out of lines that Spark has logged."""

from __future__ import annotations

import pytest

from volley.spark.output import refusal

GIVEN_UP = "ERROR StandaloneSchedulerBackend: Application has been killed. Reason: All masters are unresponsive!\n"
LOGS = {
    "java.io.IOException: Failed to connect to nohost/<unresolved>:7077\n"
    "Caused by: java.net.UnknownHostException: nohost\n\tat java": (
        "its host nohost can't be resolved",
        "DNS",
    ),
    "Caused by: io.netty.channel.AbstractChannel$AnnotatedConnectException: finishConnect(..) failed with error(-111): "
    "Connection refused: /127.0.0.1:9\n": ("nothing listens at 127.0.0.1:9: connection refused", "whether the master"),
    "io.netty.channel.AbstractChannel$AnnotatedConnectException: Connection refused: spark/10.0.0.5:7077\n": (
        "nothing listens at 10.0.0.5:7077: connection refused",
        "port",
    ),
    "java.lang.RuntimeException: java.io.InvalidClassException: org.apache.spark.rpc.netty.NettyRpcEndpointRef; local "
    "class incompatible: stream classdesc serialVersionUID = 1, local class serialVersionUID = 2\n": (
        "it runs another version of Spark than this program",
        "the cluster's version",
    ),
    "org.apache.spark.SparkException: Could not parse Master URL: 'local[x]'": ("", "local[4], spark://host:7077"),
    "java.io.IOException: Failed to create a temp directory (under /tmp) after 10 attempts!": (
        "no folder can be made below /tmp",
        "SPARK_LOCAL_DIRS",
    ),
    "26/11/27 15:06:28 ERROR DiskBlockManager: Failed to create any local dir.": (
        "no folder for its local files can be written",
        "SPARK_LOCAL_DIRS",
    ),
    "org.apache.spark.SparkException: something else": ("", ""),
}


@pytest.mark.parametrize("log", LOGS)
def test_a_refusal_is_told_from_the_log(log: str) -> None:
    meaning, hint = refusal(log + GIVEN_UP)
    expected, part = LOGS[log]
    assert meaning == expected
    assert part in hint
    assert bool(hint) == bool(part)
