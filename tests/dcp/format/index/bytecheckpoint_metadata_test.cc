// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/index/bytecheckpoint_metadata.h"

#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "dcp/base/bytes.h"
#include "dcp/format/value/value.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/format/pickle_edit.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using absl::StatusCode;
using ::dcp::testing::EditPickle;
using ::dcp::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Edit = std::function<Value(ValueArena&, const Value&)>;

std::string Golden(absl::string_view name) {
  std::ifstream in(
      absl::StrCat("tests/golden/dialects/bytecheckpoint/", name, "/.metadata"),
      std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

const std::string& Model() {
  static const std::string* const kText =
      new std::string(Golden("fsdp2_ws2/model"));
  return *kText;
}

const std::string& FlatModel() {
  static const std::string* const kText =
      new std::string(Golden("fsdp1_flat_ws2/model"));
  return *kText;
}

absl::StatusOr<ByteCheckpointMetadata> Parse(const std::string& pickle) {
  return ParseByteCheckpointMetadata(AsBytes(pickle));
}

size_t EntryIndex(const ByteCheckpointMetadata& index, absl::string_view fqn) {
  for (size_t i = 0; i < index.metadata.entries.size(); ++i) {
    if (index.metadata.entries[i].fqn == fqn) return i;
  }
  ADD_FAILURE() << fqn;
  return 0;
}

TEST(ByteCheckpointMetadata, DiffersFromDcpMetadata) {
  EXPECT_TRUE(IsByteCheckpointMetadata(Model().substr(0, 256)));
  EXPECT_FALSE(IsByteCheckpointMetadata(
      "\x80\x02"
      "ctorch.distributed.checkpoint.metadata\nMetadata\n"));
  EXPECT_FALSE(IsByteCheckpointMetadata(""));
}

TEST(ByteCheckpointMetadata, DescribesStorages) {
  ASSERT_OK_AND_ASSIGN(const ByteCheckpointMetadata index, Parse(Model()));
  EXPECT_EQ(index.metadata.version, "0.0.2");
  EXPECT_THAT(index.metadata.files,
              ElementsAre("__0_0.distcp", "__1_0.distcp"));
  EXPECT_THAT(index.flat, IsEmpty());
  ASSERT_EQ(index.chunks.size(), index.metadata.entries.size());
  const auto& rows = index.chunks[EntryIndex(index, "embed.weight")];
  ASSERT_THAT(rows, SizeIs(2));
  EXPECT_EQ(rows[1].offset, 0);
  EXPECT_THAT(rows[1].strides, IsEmpty());
  EXPECT_THAT(index.chunks[EntryIndex(index, "turned")][0].strides,
              ElementsAre(1, 6));
}

TEST(ByteCheckpointMetadata, RecordsThePartsOfFlatParameters) {
  ASSERT_OK_AND_ASSIGN(const ByteCheckpointMetadata index, Parse(FlatModel()));
  ASSERT_THAT(index.flat, SizeIs(1));
  const auto& slots = index.flat.at("layers.0._flat_param");
  ASSERT_THAT(slots, SizeIs(4));
  EXPECT_EQ(slots[0].name, "layers.0.up.weight");
  EXPECT_THAT(slots[0].shape, ElementsAre(4, 3));
  EXPECT_EQ(slots[1].numel, 3);
  EXPECT_EQ(slots[2].name, "");
  EXPECT_EQ(slots[2].numel, 1);
  EXPECT_EQ(slots[3].name, "layers.0.down.weight");
}

TEST(ByteCheckpointMetadata, OldNamesRepeatThePrefix) {
  const std::string edited = EditPickle(
      FlatModel(), "layers.0._flat_param",
      [](ValueArena& arena, const Value& value) {
        if (!value.is(Value::Kind::kList) ||
            !value.items()[0].is(Value::Kind::kStr)) {
          return value;
        }
        return arena.List({arena.Str("layers.0.up.weight"),
                           arena.Str("0.up.bias"), arena.Str(".down.weight")});
      });
  ASSERT_OK_AND_ASSIGN(const ByteCheckpointMetadata index, Parse(edited));
  const auto& slots = index.flat.at("layers.0._flat_param");
  EXPECT_EQ(slots[0].name, "layers.0.up.weight");
  EXPECT_EQ(slots[1].name, "layers.0.up.bias");
  EXPECT_EQ(slots[3].name, "layers.0.down.weight");
}

TEST(ByteCheckpointMetadata, SeveralModelsHaveALayoutEach) {
  const std::string edited =
      EditPickle(FlatModel(), "user_defined_dict",
                 [](ValueArena& arena, const Value& value) {
                   return arena.Dict({arena.Str("model_dict_keys"),
                                      arena.List({arena.Str("net")}),
                                      arena.Str("net"), value});
                 });
  ASSERT_OK_AND_ASSIGN(const ByteCheckpointMetadata index, Parse(edited));
  EXPECT_EQ(index.flat.at("net.layers.0._flat_param")[0].name,
            "net.layers.0.up.weight");
}

struct ByteCheckpointCorruption {
  std::string key;
  Edit edit;
  std::string message;
};

Edit To(Value value) {
  return [value](ValueArena&, const Value&) { return value; };
}

// Each bytes in a dict, changed.
Edit EachBytes(const std::function<std::string(std::string)>& change) {
  return [change](ValueArena& arena, const Value& table) {
    std::vector<Value> items(table.items().begin(), table.items().end());
    for (size_t i = 1; i < items.size(); i += 2) {
      if (!items[i].is(Value::Kind::kBytes)) continue;
      items[i] = arena.Bytes(change(std::string(items[i].text())));
    }
    return arena.Dict(items);
  };
}

TEST(ByteCheckpointMetadata, RefusesPicklesThatDoNotFit) {
  const std::vector<ByteCheckpointCorruption> corruptions = {
      {"all_tensor_metadata", To(Value()), "all_tensor_metadata"},
      {"all_tensor_metadata",
       [](ValueArena& arena, const Value&) { return arena.Dict(); },
       "embed.weight: chunk at [0, 0]: all_tensor_metadata has no entry"},
      {"all_tensor_metadata",
       [](ValueArena& arena, const Value& table) {
         return arena.Dict({table.items()[0], Value::Int(7)});
       },
       "all_tensor_metadata of embed.weight is 7"},
      {"all_tensor_metadata",
       EachBytes([](std::string text) { return text.substr(0, 20); }),
       "embed.weight: chunk at [0, 0]"},
      {"all_tensor_metadata",
       EachBytes([](const std::string&) { return "\x80\x02K\x07."; }),
       "its pickle is 7"},
      {"all_tensor_metadata", EachBytes([](std::string text) {
         return absl::StrReplaceAll(text, {{"FloatStorage", "IntStorage"}});
       }),
       "its pickle is a tensor of int32 [3, 3], but the index says float32"},
      {"length",
       [](ValueArena&, const Value& length) {
         return Value::Int(length.int_value() + 1);
       },
       "its pickle has a storage of 36 bytes, but the data file has 37"},
      {"length", To(Value::Int(-1)), "length"},
      {"offset", To(Value::Int(-1)), "a torch.Size"},
      {"storage_data", To(Value()), "storage_data"},
      {"state_dict_metadata", To(Value()), "state_dict_metadata"},
  };
  for (const ByteCheckpointCorruption& corruption : corruptions) {
    EXPECT_THAT(Parse(EditPickle(Model(), corruption.key, corruption.edit)),
                StatusIs(StatusCode::kDataLoss, HasSubstr(corruption.message)))
        << corruption.key;
  }
}

TEST(ByteCheckpointMetadata, RefusesCode) {
  const auto system = EachBytes(
      [](const std::string&) { return "cos\nsystem\n(S'true'\ntR."; });
  EXPECT_THAT(Parse(EditPickle(Model(), "all_tensor_metadata", system)),
              StatusIs(StatusCode::kPermissionDenied, HasSubstr("system")));
  EXPECT_THAT(Parse(EditPickle(Model(), "relative_path",
                               [](ValueArena& arena, const Value&) {
                                 return arena.Str("../x");
                               })),
              StatusIs(StatusCode::kDataLoss, HasSubstr("'..'")));
}

// The entry for the flat parameter in one layout table.
Edit Row(const Edit& edit) {
  return [edit](ValueArena& arena, const Value& table) {
    return arena.Dict({table.items()[0], edit(arena, table.items()[1])});
  };
}

TEST(ByteCheckpointMetadata, RefusesLayoutsThatDoNotAddUp) {
  const Edit shorter = [](ValueArena& arena, const Value& row) {
    return arena.List(row.items().subspan(1));
  };
  const Edit ones = [](ValueArena& arena, const Value& row) {
    return arena.List(std::vector<Value>(row.items().size(), Value::Int(1)));
  };
  const Edit no_padding = [](ValueArena& arena, const Value& row) {
    return arena.List(
        std::vector<Value>(row.items().size(), Value::Bool(false)));
  };
  const Edit all_padding = [](ValueArena& arena, const Value& row) {
    return arena.List(
        std::vector<Value>(row.items().size(), Value::Bool(true)));
  };
  const std::vector<ByteCheckpointCorruption> corruptions = {
      {"fsdp_is_padding_mask", Row(shorter), "3 padding masks for 4 sizes"},
      {"fsdp_is_padding_mask", Row(no_padding), "its shape is"},
      {"fsdp_is_padding_mask", Row(all_padding), "0 sizes that are not"},
      {"fsdp_is_padding_mask", Row(ones), "a size"},
      {"fsdp_is_padding_mask", To(Value()), "fsdp_is_padding_mask has no list"},
      {"fsdp_numels_with_padding", Row(ones),
       "has 1 elements, but its shape is [4, 3]"},
      {"fsdp_shapes", Row(shorter), "3 names for 2 shapes"},
      {"fsdp_shapes", Row(ones), "layers.0._flat_param"},
      {"fsdp_flat_param_to_fqns", Row(ones), "parameter 0 has no name"},
      {"fsdp_flat_param_to_fqns", To(Value::Int(1)), "to_fqns"},
  };
  for (const ByteCheckpointCorruption& corruption : corruptions) {
    EXPECT_THAT(Parse(EditPickle(FlatModel(), corruption.key, corruption.edit)),
                StatusIs(StatusCode::kDataLoss, HasSubstr(corruption.message)))
        << corruption.key << ": " << corruption.message;
  }
}

TEST(ByteCheckpointMetadata, ChangedBytesAreDataLoss) {
  constexpr StatusCode kExpected[] = {
      StatusCode::kOk, StatusCode::kDataLoss, StatusCode::kPermissionDenied,
      StatusCode::kUnimplemented, StatusCode::kResourceExhausted};
  int num_refused = 0;
  for (size_t at = 0; at < FlatModel().size(); at += 3) {
    for (const char bits : {'\x01', '\x80', '\xff'}) {
      std::string changed = FlatModel();
      changed[at] = static_cast<char>(changed[at] ^ bits);
      const StatusCode code = Parse(changed).status().code();
      EXPECT_THAT(kExpected, ::testing::Contains(code)) << at;
      num_refused += code == StatusCode::kOk ? 0 : 1;
    }
  }
  EXPECT_GT(num_refused, 500);
}

TEST(ByteCheckpointMetadata, RefusesTruncation) {
  for (size_t size = 0; size < Model().size(); size += 61) {
    EXPECT_FALSE(Parse(Model().substr(0, size)).ok()) << size;
  }
}

}  // namespace
}  // namespace dcp
