// SPDX-License-Identifier: Apache-2.0

#include "proto/messages/entry_messages.h"

#include <cstdint>
#include <string>
#include <variant>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

namespace v1 = ::tessera::v1;

using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

CheckpointEntry TensorEntryOf(const std::string& fqn) {
  TensorEntry tensor;
  tensor.dtype = DType::kBFloat16;
  tensor.shape = {4, 3};
  tensor.boxes = {Box{{0, 0}, {2, 3}}, Box{{2, 0}, {2, 3}}};
  tensor.locations.resize(2);
  tensor.locations[0].item = {.file = 1, .offset = 7, .length = 12};
  tensor.locations[1].item = {.file = 0, .offset = 9, .length = 12};
  return {.fqn = fqn, .path = {}, .value = tensor};
}

TEST(EntryMessages, TensorsIncludeChunkPlaces) {
  v1::Tensor proto;
  TensorToProto(TensorEntryOf("w"), {"a", "b"}, proto);
  EXPECT_EQ(proto.ShortDebugString(),
            "name: \"w\" dtype: \"bfloat16\" shape: 4 shape: 3 num_bytes: 24 "
            "num_chunks: 2 chunks { box { offsets: 0 offsets: 0 sizes: 2 "
            "sizes: 3 } file: \"b\" offset: 7 length: 12 } chunks { box { "
            "offsets: 2 offsets: 0 sizes: 2 sizes: 3 } file: \"a\" offset: 9 "
            "length: 12 }");
  proto.Clear();
  TensorToProto(TensorEntryOf("w\xFF"), {}, proto);
  EXPECT_EQ(proto.name(), "w\xEF\xBF\xBD");
  EXPECT_EQ(proto.chunks_size(), 0);
}

TEST(EntryMessages, ShowsObjectsThatWereRead) {
  CheckpointEntry entry{.fqn = "lr", .path = {}, .value = ObjectEntry()};
  v1::Object proto;
  ObjectToProto(entry, /*with_text=*/true, proto);
  EXPECT_EQ(proto.text(), "");
  std::get<ObjectEntry>(entry.value).located = true;
  std::get<ObjectEntry>(entry.value).value = Value::Float(0.5);
  ObjectToProto(entry, /*with_text=*/false, proto);
  EXPECT_EQ(proto.text(), "");
  ObjectToProto(entry, /*with_text=*/true, proto);
  EXPECT_EQ(proto.name(), "lr");
  EXPECT_EQ(proto.text(), "0.5");
}

TEST(EntryMessages, TensorsComeBackUnchanged) {
  v1::Tensor proto;
  TensorToProto(TensorEntryOf("w"), {"a", "b"}, proto);
  ASSERT_OK_AND_ASSIGN(const TensorEntry tensor,
                       TensorFromProto(proto, [](const std::string& name) {
                         return name == "b" ? uint32_t{1} : uint32_t{0};
                       }));
  const TensorEntry sent = *TensorEntryOf("w").tensor();
  EXPECT_EQ(tensor.dtype, sent.dtype);
  EXPECT_EQ(tensor.shape, sent.shape);
  EXPECT_EQ(tensor.boxes, sent.boxes);
  ASSERT_EQ(tensor.locations.size(), 2u);
  EXPECT_EQ(tensor.locations[0].item.file, 1u);
  EXPECT_EQ(tensor.locations[0].item.offset, 7u);
  EXPECT_EQ(tensor.locations[1].item.length, 12u);
}

TEST(EntryMessages, RefusesImpossibleTensors) {
  const auto refused = [](const v1::Tensor& proto) {
    return TensorFromProto(proto, [](const std::string&) { return 0; })
        .status();
  };
  v1::Tensor proto;
  proto.set_name("w");
  proto.set_dtype("float32");
  proto.add_shape(-1);
  EXPECT_THAT(refused(proto), StatusIs(absl::StatusCode::kDataLoss,
                                       HasSubstr("w: the server")));
  proto.set_shape(0, 1);
  EXPECT_OK(refused(proto));
  proto.add_chunks()->mutable_box()->add_sizes(1);
  EXPECT_THAT(refused(proto),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("w: a chunk")));
}

}  // namespace
}  // namespace dcp
