// What needs a GPU, with one rank: that the backend is found, registers, and
// reduces. Linked everywhere, run with --config=cuda.
#include <vector>

#include "ATen/ops/full.h"
#include "fsdp/device_mesh.h"
#include "fsdp/process_group.h"
#include "fsdp/work.h"
#include "gtest/gtest.h"

namespace fsdp {
namespace {

TEST(Nccl, OneRankReduces) {
  init_process_group();
  const DeviceMesh mesh = init_device_mesh("cuda", {1}, {"shard"});
  EXPECT_TRUE(mesh.device().is_cuda());
  const ProcessGroup group = mesh.get_group();
  std::vector<at::Tensor> tensors = {
      at::full({4}, 3.0, at::TensorOptions(mesh.device()))};
  WaitForWork(
      IssueWork(*group, "sum", [&] { return group->allreduce(tensors); }),
      *group, "sum");
  EXPECT_EQ(tensors[0].sum().item<float>(), 12);
  EXPECT_EQ(group->getBackend(c10::DeviceType::CPU)->getBackendName(), "gloo");
  destroy_process_group();
}

}  // namespace
}  // namespace fsdp
