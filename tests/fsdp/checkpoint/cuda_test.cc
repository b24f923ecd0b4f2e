// SPDX-License-Identifier: Apache-2.0
// Tests that require a GPU: staging on a separate stream through pinned memory,
// and loading back. Linked everywhere, run with --config=cuda.
#include <cstdint>
#include <string>

#include "ATen/ops/empty.h"
#include "ATen/ops/from_blob.h"
#include "ATen/ops/full.h"
#include "ATen/ops/rand.h"
#include "ATen/ops/zeros.h"
#include "fsdp/checkpoint/async_saver.h"
#include "fsdp/checkpoint/save_and_load.h"
#include "fsdp/checkpoint/state/rng_state.h"
#include "fsdp/checkpoint/state/state_value.h"
#include "fsdp/checkpoint/state/tensor_io.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"
#include "tests/testing/temp_dir.h"

namespace fsdp {
namespace {

using ::dcp::testing::TempDir;
constexpr int64_t kSize = 3 << 20;  // several blocks of floats

const at::TensorOptions kGpu = at::TensorOptions(at::kCUDA);

TEST(Cuda, StagingMemoryIsPinned) {
  void* const memory = StagingMemory()->allocate(4096, 4096);
  EXPECT_TRUE(at::from_blob(memory, {4096}, at::kByte).is_pinned());
  StagingMemory()->deallocate(memory, 4096, 4096);
}

TEST(Cuda, SavesTheValuesAtTheCall) {
  const TempDir dir;
  AsyncSaver saver;
  const at::Tensor value = at::zeros({kSize}, kGpu);
  const at::Tensor transposed = at::rand({300, 200}, kGpu).t();
  for (int64_t round = 1; round <= 3; ++round) {
    // Nothing waits for these, so the copies must.
    for (int i = 0; i < 100; ++i) value.add_(1);
    const std::string path = dir.path() + "/" + std::to_string(round);
    ASSERT_OK_AND_ASSIGN(
        SaveHandle save,
        saver.save({{"value", value}, {"transposed", transposed}}, path));
    EXPECT_OK(save.wait_staged());
    value.zero_();
    ASSERT_OK(save.wait());
    const at::Tensor loaded = at::empty({kSize}, kGpu);
    const at::Tensor on_cpu = at::empty({200, 300}, at::kFloat);
    StateDict state = {{"value", loaded}, {"transposed", on_cpu}};
    ASSERT_OK(load(state, path));
    EXPECT_TRUE(loaded.equal(at::full({kSize}, 100.0, kGpu)));
    EXPECT_TRUE(on_cpu.equal(transposed.cpu()));
  }
}

TEST(Cuda, LoadsIntoAnyStrides) {
  const TempDir dir;
  const at::Tensor value = at::rand({300, 200}, kGpu);
  ASSERT_OK(save({{"value", value}}, dir.path() + "/a"));
  const at::Tensor transposed = at::zeros({200, 300}, kGpu).t();
  StateDict state = {{"value", transposed}};
  ASSERT_OK(load(state, dir.path() + "/a"));
  EXPECT_TRUE(transposed.equal(value));
}

TEST(Cuda, RandomNumbersContinue) {
  ASSERT_OK_AND_ASSIGN(const StateDict state, get_rng_state());
  ASSERT_NE(state.find("cuda"), nullptr);
  const at::Tensor expected = at::rand({100}, kGpu);
  ASSERT_OK(set_rng_state(state));
  EXPECT_TRUE(at::rand({100}, kGpu).equal(expected));
}

}  // namespace
}  // namespace fsdp
