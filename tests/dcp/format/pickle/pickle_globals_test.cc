// SPDX-License-Identifier: Apache-2.0
// Tests the allow-lists themselves; pickle_reader_test.cc tests that the reader
// obeys them.

#include "dcp/format/pickle/pickle_globals.h"

#include <gtest/gtest.h>

namespace dcp {
namespace {

TEST(PickleGlobals, StateDictsHoldTensorsAndPlainValues) {
  EXPECT_TRUE(IsStateDictGlobal("torch._utils", "_rebuild_tensor_v2"));
  EXPECT_TRUE(IsStateDictGlobal("torch", "BFloat16Storage"));
  EXPECT_TRUE(IsStateDictGlobal("torch", "float8_e4m3fn"));
  EXPECT_TRUE(IsStateDictGlobal("collections", "OrderedDict"));
  EXPECT_TRUE(IsStateDictGlobal("builtins", "set"));
  EXPECT_TRUE(IsStateDictGlobal("numpy.core.multiarray", "scalar"));
  EXPECT_TRUE(IsStateDictGlobal("numpy._core.multiarray", "_reconstruct"));
}

TEST(PickleGlobals, MetadataHoldsItsOwnClasses) {
  EXPECT_TRUE(IsMetadataGlobal("torch.distributed.checkpoint.metadata",
                               "TensorStorageMetadata"));
  EXPECT_TRUE(IsMetadataGlobal("torch.distributed.checkpoint.filesystem",
                               "_StorageInfo"));
  EXPECT_TRUE(IsMetadataGlobal("torch", "Size"));
  EXPECT_TRUE(
      IsMetadataGlobal("torch.distributed.checkpoint.planner", "WriteItem"));
  EXPECT_TRUE(IsMetadataGlobal(
      "megatron.core.dist_checkpointing.strategies.torch", "MCoreSavePlan"));
  EXPECT_FALSE(IsMetadataGlobal(
      "megatron.core.dist_checkpointing.strategies.torch", "save"));
  EXPECT_FALSE(
      IsStateDictGlobal("torch.distributed.checkpoint.planner", "WriteItem"));
  EXPECT_FALSE(IsStateDictGlobal("torch.distributed.checkpoint.metadata",
                                 "TensorStorageMetadata"));
  EXPECT_FALSE(IsMetadataGlobal("torch._utils", "_rebuild_tensor_v2"));
}

TEST(PickleGlobals, NothingThatRunsCodeIsOnEitherList) {
  constexpr const char* kHostile[][2] = {
      {"os", "system"},
      {"posix", "system"},
      {"builtins", "eval"},
      {"builtins", "exec"},
      {"builtins", "__import__"},
      {"builtins", "open"},
      {"builtins", "compile"},
      {"subprocess", "Popen"},
      {"torch", "load"},
      {"torch.hub", "load"},
      {"importlib", "import_module"},
      {"runpy", "_run_code"},
      {"torch.serialization", "load"},
      {"operator", "attrgetter"},
      {"functools", "partial"},
      {"torch.nn.modules.linear", "Linear"},
      {"torch.jit", "load"},
      {"numpy", "load"},
      {"", "os"},
      {"os", ""},
  };
  for (const auto& [module, name] : kHostile) {
    EXPECT_FALSE(IsStateDictGlobal(module, name)) << module << "." << name;
    EXPECT_FALSE(IsMetadataGlobal(module, name)) << module << "." << name;
  }
}

TEST(PickleGlobals, ListsHoldOnlyTheNeededGlobals) {
  EXPECT_TRUE(IsStateDictGlobal("torch._utils", "_rebuild_tensor_v2"));
  EXPECT_TRUE(IsStateDictGlobal("torch", "float8_e4m3fn"));
  EXPECT_TRUE(IsStateDictGlobal("torch.cuda", "HalfStorage"));
  EXPECT_TRUE(IsStateDictGlobal("numpy._core.multiarray", "scalar"));
  EXPECT_FALSE(IsStateDictGlobal("torch", "load"));
  EXPECT_FALSE(IsStateDictGlobal("torch.cuda", "float32"));
  EXPECT_FALSE(IsStateDictGlobal("builtins", "getattr"));
  EXPECT_FALSE(IsStateDictGlobal("builtins", "eval"));
  EXPECT_TRUE(IsMetadataGlobal("torch", "bfloat16"));
  EXPECT_FALSE(IsMetadataGlobal("torch._utils", "_rebuild_tensor_v2"));
  EXPECT_FALSE(IsMetadataGlobal("torch.distributed.checkpoint._hf_utils",
                                "_HFStorageInfo"));
}

}  // namespace
}  // namespace dcp
