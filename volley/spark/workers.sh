#!/bin/sh
# The Python of Spark's workers on this machine: without Spark's archives in its path.
#
# They would hide the installed PySpark, which is the same; from an archive Python compiles each module anew in each
# process. Whatever else is in the path stays.
set -f
IFS=:
kept=
for entry in $PYTHONPATH; do
    case $entry in
    "$SPARK_HOME"/python/lib/*.zip | "$SPARK_HOME"/jars/*) ;;
    *) kept=$kept${kept:+:}$entry ;;
    esac
done
unset IFS
PYTHONPATH=$kept exec "$VOLLEY_PYTHON" "$@"
