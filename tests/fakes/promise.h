// Marks a test as a proof of promises of the design, by their numbers (tests/promises.py).
#pragma once

#include <gtest/gtest.h>

// The first statement of a test. The runner reads it from the source and from the test's results.
#define PROMISE(...) RecordProperty("promise", #__VA_ARGS__)
