// SPDX-License-Identifier: Apache-2.0
// For tests of errors: checks the exact class and the text of an error, and
// that a failed call left a module unchanged. For the thread of the test.
#ifndef TESTS_FSDP_MODULE_SNAPSHOT_H_
#define TESTS_FSDP_MODULE_SNAPSHOT_H_

#include <functional>
#include <string>
#include <typeinfo>
#include <vector>

#include "ATen/core/Tensor.h"
#include "ATen/ops/equal.h"
#include "c10/util/Exception.h"
#include "fsdp/engine/lazy_key.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "torch/nn/module.h"

namespace fsdp::testing {

// `call` must end with an Error, not with a derived class, and the message must
// contain every string in `says`.
template <typename Error>
void ExpectError(const std::function<void()>& call,
                 const std::vector<std::string>& says) {
  const auto is_it = [&says](const Error& error) {
    EXPECT_STREQ(typeid(error).name(), typeid(Error).name());
    for (const std::string& text : says) {
      EXPECT_THAT(error.what_without_backtrace(), ::testing::HasSubstr(text));
    }
    return true;
  };
  EXPECT_THAT(call, ::testing::Throws<Error>(::testing::Truly(is_it)));
}

// The parameters and buffers of a module that is not sharded.
class ModuleSnapshot {
 public:
  explicit ModuleSnapshot(const torch::nn::Module& module)
      : held_(Hold(module)) {}

  // Expects the same objects on the same memory, with the same values.
  void ExpectSame(const torch::nn::Module& module) const {
    const std::vector<Held> now = Hold(module);
    ASSERT_EQ(now.size(), held_.size());
    for (size_t i = 0; i < now.size(); ++i) {
      const std::string& name = held_[i].name;
      const at::Tensor& tensor = now[i].tensor;
      EXPECT_EQ(now[i].name, name);
      EXPECT_TRUE(tensor.is_same(held_[i].tensor)) << name;
      EXPECT_EQ(now[i].memory, held_[i].memory) << name;
      EXPECT_EQ(tensor.sizes(), held_[i].sizes) << name;
      EXPECT_EQ(tensor.requires_grad(), held_[i].requires_grad) << name;
      EXPECT_FALSE(HasLazyKey(tensor)) << name;
      if (!tensor.is_meta()) {
        EXPECT_TRUE(at::equal(tensor, held_[i].value)) << name;
      }
    }
  }

 private:
  struct Held {
    std::string name;
    at::Tensor tensor;
    const void* memory;
    std::vector<int64_t> sizes;
    bool requires_grad;
    at::Tensor value;
  };

  static std::vector<Held> Hold(const torch::nn::Module& module) {
    std::vector<Held> held;
    const auto add = [&held](const auto& items) {
      for (const auto& item : items) {
        const at::Tensor& tensor = item.value();
        held.push_back({item.key(), tensor, tensor.data_ptr(),
                        tensor.sizes().vec(), tensor.requires_grad(),
                        tensor.detach().clone()});
      }
    };
    add(module.named_parameters());
    add(module.named_buffers());
    return held;
  }

  std::vector<Held> held_;
};

}  // namespace fsdp::testing

#endif  // TESTS_FSDP_MODULE_SNAPSHOT_H_
