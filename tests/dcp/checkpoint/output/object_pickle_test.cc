// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/output/object_pickle.h"

#include <memory>
#include <string>
#include <vector>

#include "dcp/format/torch/torch_tensor.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

TEST(ObjectPickle, GivesTensorsSeparateStorages) {
  ValueArena arena;
  const Value first = MakeTensor(arena, DType::kFloat32, {2, 3}, false, "17");
  const Value second = MakeTensor(arena, DType::kInt64, {4}, false, "42");
  ObjectEntry object;
  object.value = arena.Tuple({first, Value::Int(5), second});
  TensorEntry entry;
  entry.dtype = DType::kFloat32;
  entry.shape = {2, 3};
  object.tensors[first.identity()] = entry;
  entry.dtype = DType::kInt64;
  entry.shape = {4};
  entry.requires_grad = false;
  object.tensors[second.identity()] = entry;

  ValueArena target;
  std::vector<Dims> shapes;
  const Value rebuilt =
      RebuildObject(target, object, [&](const TensorEntry& tensor) {
        shapes.push_back(tensor.shape);
        return shapes.size() - 1;
      });
  ASSERT_TRUE(rebuilt.is(Value::Kind::kTuple));
  ASSERT_EQ(rebuilt.items().size(), 3u);
  EXPECT_EQ(rebuilt.items()[1].int_value(), 5);
  for (const size_t i : {size_t{0}, size_t{2}}) {
    ASSERT_OK_AND_ASSIGN(const TorchTensor tensor,
                         ParseTensor(rebuilt.items()[i]));
    EXPECT_EQ(tensor.storage_key, i == 0 ? "0" : "1");
    EXPECT_EQ(tensor.dtype, i == 0 ? DType::kFloat32 : DType::kInt64);
    EXPECT_EQ(tensor.sizes, shapes[i == 0 ? 0 : 1]);
  }
}

TEST(ObjectPickle, CopiesAnObjectWithoutTensors) {
  ValueArena arena;
  ObjectEntry object;
  object.value = arena.Dict({arena.Str("lr"), Value::Float(0.1)});
  ValueArena target;
  const Value rebuilt =
      RebuildObject(target, object, [](const TensorEntry&) -> size_t {
        ADD_FAILURE() << "there is no tensor";
        return 0;
      });
  EXPECT_TRUE(DeepEqual(rebuilt, object.value));
  EXPECT_NE(rebuilt.identity(), object.value.identity());
}

TEST(ObjectPickle, WholePayloadIsAllOfTheTensor) {
  TensorEntry tensor;
  tensor.shape = {3, 5};
  const Payload payload = WholePayload(tensor, nullptr, DType::kBFloat16);
  EXPECT_EQ(payload.stored, &tensor);
  EXPECT_EQ(payload.box, WholeBox(tensor.shape));
  EXPECT_EQ(payload.num_bytes(), 30u);
}

}  // namespace
}  // namespace dcp
