// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/files/wrapper_names.h"

#include "gtest/gtest.h"

namespace dcp {
namespace {

TEST(WrapperNames, WrappersAreLeftOut) {
  const struct {
    const char* name;
    const char* without;
  } cases[] = {
      {"layers.0.w", "layers.0.w"},
      {"module.w", "w"},
      {"module.module.w", "w"},
      {"_orig_mod.module._fsdp_wrapped_module.layers.0."
       "_checkpoint_wrapped_module.mlp.w",
       "layers.0.mlp.w"},
      // A module with this name inside a model is not a wrapper.
      {"encoder.module.w", "encoder.module.w"},
      {"my_orig_mod.w", "my_orig_mod.w"},
      {"module", "module"},
      {"a._orig_mod", "a._orig_mod"},
      {"", ""},
  };
  for (const auto& test : cases) {
    EXPECT_EQ(WithoutWrappers(test.name), test.without);
  }
}

}  // namespace
}  // namespace dcp
