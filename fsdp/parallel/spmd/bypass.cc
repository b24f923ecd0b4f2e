// SPDX-License-Identifier: Apache-2.0
// Excludes the handler from this thread's operators.
//
// Tested by tests/fsdp/parallel/spmd/sharded_test.cc.
#include "fsdp/parallel/spmd/bypass.h"

namespace fsdp::spmd {
namespace {

thread_local int bypass_depth = 0;

}  // namespace

BypassHandler::BypassHandler() { ++bypass_depth; }
BypassHandler::~BypassHandler() { --bypass_depth; }
bool BypassHandler::active() { return bypass_depth > 0; }

}  // namespace fsdp::spmd
