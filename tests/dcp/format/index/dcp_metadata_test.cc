// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/index/dcp_metadata.h"

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/bytes.h"
#include "dcp/base/status.h"
#include "dcp/format/pickle/metadata_modules.h"
#include "dcp/format/pickle/pickle_writer.h"
#include "dcp/format/value/value.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using ::dcp::testing::IsOkAndHolds;
using ::dcp::testing::StatusIs;
using ::testing::Eq;
using ::testing::HasSubstr;

// An object's attributes under construction, to be changed by a test.
using Fields = std::vector<std::pair<std::string, Value>>;

// An index with the tensor w, shape [4, 3], in two chunks and the bytes entry
// "step", in pieces that a test changes before they are pickled.
struct Index {
  ValueArena arena;

  Value Object(absl::string_view module, absl::string_view name,
               const Fields& fields) {
    const Value object =
        arena.Call(arena.Global(module, name), arena.Tuple({}));
    const Value state = arena.Dict();
    for (const auto& [key, value] : fields) {
      arena.Update(state, {arena.Str(key), value});
    }
    arena.SetState(object, state);
    return object;
  }

  Value Call1(absl::string_view module, absl::string_view name, Value arg) {
    return arena.Call(arena.Global(module, name), arena.Tuple({arg}));
  }

  Value Size(const std::vector<int64_t>& dims) {
    return Call1("torch", "Size", Ints(dims));
  }

  Value Chunk(const std::vector<int64_t>& offsets,
              const std::vector<int64_t>& sizes) {
    return Object(kMetadataModule, "ChunkStorageMetadata",
                  {{"offsets", Size(offsets)}, {"sizes", Size(sizes)}});
  }

  Value Key(absl::string_view fqn, Value index, Value offset) {
    Fields fields = {{"fqn", arena.Str(fqn)}, {"index", index}};
    if (!offset.is_none()) fields.emplace_back("offset", offset);
    return Object(kMetadataModule, "MetadataIndex", fields);
  }

  Value Info() {
    return Object("torch.distributed.checkpoint.filesystem", "_StorageInfo",
                  info);
  }

  Value Properties() {
    const Value value = arena.Call(
        arena.Global(properties_module, "TensorProperties"), arena.Tuple({}));
    arena.SetState(value, arena.Tuple(properties));
    return value;
  }

  std::string properties_module{kMetadataModule};
  std::vector<Value> properties = {
      arena.Global("torch", "float32"),
      Call1("torch.serialization", "_get_layout", arena.Str("torch.strided")),
      Value::Bool(false),
      Call1(kMetadataModule, "_MEM_FORMAT_ENCODING", Value::Int(0)),
      Value::Bool(false)};
  Value size = Size({4, 3});
  std::vector<Value> chunks = {Chunk({0, 0}, {2, 3}), Chunk({2, 0}, {2, 3})};
  Fields info = {{"relative_path", arena.Str("__0_0.distcp")},
                 {"offset", Value::Int(0)},
                 {"length", Value::Int(1577)}};
  Value path_of_w = arena.Tuple({arena.Str("w")});
  Value path_of_step = arena.Tuple({arena.Str("step")});
  std::pair<std::string, std::string> root_class = {
      std::string(kMetadataModule), "Metadata"};
  Fields root_changes;  // replace or add Metadata's attributes
  std::vector<std::pair<Value, Value>> more_state;
  std::vector<std::pair<Value, Value>> storage = {
      {Key("step", Value(), Value()), Value()},
      {Key("w", Value::Int(0), Size({0, 0})), Value()},
      {Key("w", Value::Int(1), Size({2, 0})), Value()}};

  Value Ints(const std::vector<int64_t>& numbers) {
    std::vector<Value> items;
    for (const int64_t number : numbers) items.push_back(Value::Int(number));
    return arena.Tuple(items);
  }

  // mcore_data with that shape for `name`.
  void Reformulate(absl::string_view name, Value shape) {
    const Value key = arena.Str("nd_reformulated_orig_global_shape");
    SetMcoreData(arena.Str(name), arena.Dict({key, shape}));
  }
  void SetMcoreData(Value key, Value value) {
    root_changes = {{"mcore_data", arena.Dict({key, value})}};
  }

  std::string Pickle() {
    const Value state = arena.Dict();
    arena.Update(
        state,
        {arena.Str("step"),
         arena.Call(arena.Global(kMetadataModule, "BytesStorageMetadata"),
                    arena.Tuple({}))});
    arena.Update(
        state, {arena.Str("w"), Object(kMetadataModule, "TensorStorageMetadata",
                                       {{"properties", Properties()},
                                        {"size", size},
                                        {"chunks", arena.List(chunks)}})});
    for (const auto& [key, value] : more_state) {
      arena.Update(state, {key, value});
    }
    const Value planner = arena.Dict();
    arena.Update(planner, {arena.Str("step"), path_of_step});
    arena.Update(planner, {arena.Str("w"), path_of_w});
    const Value storage_data = arena.Dict();
    for (const auto& [key, value] : storage) {
      arena.Update(storage_data, {key, value.is_none() ? Info() : value});
    }
    const Value meta =
        Object(kMetadataModule, "StorageMeta",
               {{"checkpoint_id", Value()}, {"save_id", arena.Str("id")}});
    Fields fields = {{"state_dict_metadata", state},
                     {"planner_data", planner},
                     {"storage_data", storage_data},
                     {"storage_meta", meta},
                     {"version", arena.Str("1.0.0")}};
    for (const auto& change : root_changes) {
      bool found = false;
      for (auto& field : fields) {
        if (field.first == change.first) {
          field.second = change.second;
          found = true;
        }
      }
      if (!found) fields.push_back(change);
    }
    return WritePickle(Object(root_class.first, root_class.second, fields));
  }
};

absl::StatusOr<Metadata> ParseMetadata(Index& index) {
  return ParseDcpMetadata(AsBytes(index.Pickle()));
}

TEST(DcpMetadata, JoinsChunksWithTheirStorage) {
  Index index;
  ASSERT_OK_AND_ASSIGN(const Metadata metadata, ParseMetadata(index));
  EXPECT_EQ(metadata.files, std::vector<std::string>{"__0_0.distcp"});
  EXPECT_TRUE(metadata.has_planner_data);
  EXPECT_EQ(metadata.save_id, "id");
  EXPECT_EQ(metadata.version, "1.0.0");
  ASSERT_EQ(metadata.entries.size(), 2u);
  EXPECT_EQ(metadata.entries[0].fqn, "step");
  EXPECT_EQ(std::get<BytesStorageMetadata>(metadata.entries[0].value).storage,
            (StorageInfo{.file = 0, .offset = 0, .length = 1577}));
  EXPECT_EQ(metadata.entries[1].path, StatePath{PathElement("w")});
  const auto& tensor =
      std::get<TensorStorageMetadata>(metadata.entries[1].value);
  EXPECT_EQ(tensor.dtype, DType::kFloat32);
  EXPECT_EQ(tensor.size, Dims({4, 3}));
  ASSERT_EQ(tensor.chunks.size(), 2u);
  EXPECT_EQ(tensor.chunks[1].box, (Box{{2, 0}, {2, 3}}));
}

struct Variant {
  const char* name;
  std::function<void(Index&)> change;
};

Value Getattr(Index& i, absl::string_view member) {
  return i.arena.Call(
      i.arena.Global("builtins", "getattr"),
      i.arena.Tuple({i.arena.Global(kMetadataModule, "_MEM_FORMAT_ENCODING"),
                     i.arena.Str(member)}));
}

const Variant kAccepted[] = {
    {"wrong index hint",
     [](Index& i) {
       i.storage[1].first = i.Key("w", Value::Int(999), i.Size({0, 0}));
     }},
    {"no storage_meta, no version",
     [](Index& i) {
       i.root_changes = {{"storage_meta", Value()}, {"version", Value()}};
     }},
    {"unknown attribute",
     [](Index& i) {
       i.root_changes = {{"future", i.arena.List({Value::Int(1)})}};
     }},
    {"saved without flattening",
     [](Index& i) {
       i.root_changes = {{"planner_data", Value()}};
     }},
    {"enum by name",
     [](Index& i) { i.properties[3] = Getattr(i, "TORCH_CHANNELS_LAST"); }},
    {"class paths of PyTorch 2.2",
     [](Index& i) {
       i.properties_module = std::string(kOldMetadataModule);
       i.properties[3] =
           i.Call1(kOldMetadataModule, "MEM_FORMAT_ENCODING", Value::Int(0));
     }},
    {"strides of PyTorch 2.15",
     [](Index& i) {
       i.properties.push_back(i.arena.Tuple({Value::Int(3), Value::Int(1)}));
     }},
    {"no strides of PyTorch 2.15",
     [](Index& i) { i.properties.push_back(Value()); }},
    {"storage of an unknown name",
     [](Index& i) {
       i.storage.emplace_back(i.Key("ghost", Value(), i.Size({0})), Value());
     }},
    {"no transforms",
     [](Index& i) {
       i.info.emplace_back("transform_descriptors", i.arena.List());
     }},
    {"empty shards that share an offset",
     [](Index& i) {
       i.chunks.push_back(i.Chunk({4, 0}, {0, 3}));
       i.chunks.push_back(i.Chunk({4, 0}, {0, 3}));
       i.storage.emplace_back(i.Key("w", Value::Int(2), i.Size({4, 0})),
                              Value());
     }},
    {"plans of all ranks, and in them anything",
     [](Index& i) {
       constexpr absl::string_view kPlanner =
           "torch.distributed.checkpoint.planner";
       const Value item = i.Object(
           kPlanner, "WriteItem",
           {{"index", i.Key("other", Value(), i.Size({0, 0}))},
            {"type", i.Call1(kPlanner, "WriteItemType", Value::Int(2))}});
       const Value plan =
           i.Object(kPlanner, "SavePlan", {{"items", i.arena.List({item})}});
       i.root_changes = {{"all_local_plans", i.arena.List({plan, Value()})}};
     }},
    {"mcore_data of other names",
     [](Index& i) { i.SetMcoreData(i.arena.Str("x"), Value::Int(1)); }},
    {"mcore_data without a shape",
     [](Index& i) { i.SetMcoreData(i.arena.Str("w"), i.arena.Dict()); }},
    {"chunks that leave a hole are not judged here",
     [](Index& i) { i.chunks.pop_back(); }},
};

TEST(DcpMetadata, AcceptsVariants) {
  for (const Variant& variant : kAccepted) {
    Index index;
    variant.change(index);
    EXPECT_OK(ParseMetadata(index)) << variant.name;
  }
}

absl::StatusOr<std::optional<Dims>> ReformulatedFrom(Index& index) {
  DCP_ASSIGN_OR_RETURN(const Metadata metadata, ParseMetadata(index));
  return std::get<TensorStorageMetadata>(metadata.entries[1].value)
      .reformulated_from;
}

TEST(DcpMetadata, McoreDataHasTheShapesOfReformulatedTensors) {
  Index plain;
  EXPECT_THAT(ReformulatedFrom(plain), IsOkAndHolds(Eq(std::nullopt)));
  Index index;
  index.Reformulate("w", index.Ints({2, 6}));
  EXPECT_THAT(ReformulatedFrom(index), IsOkAndHolds(Dims{2, 6}));
  index.root_class = {"megatron.core.dist_checkpointing.strategies.torch",
                      "MCoreMetadata"};
  index.Reformulate("w", index.Size({12}));
  EXPECT_THAT(ReformulatedFrom(index), IsOkAndHolds(Dims{12}));
}

struct MetadataCorruption {
  const char* name;
  std::function<void(Index&)> corrupt;
  const char* message;
};

std::function<void(Index&)> SetInfo(size_t field, int64_t value) {
  return [=](Index& i) { i.info[field].second = Value::Int(value); };
}

std::function<void(Index&)> SetFile(absl::string_view name) {
  return [=](Index& i) { i.info[0].second = i.arena.Str(name); };
}

const MetadataCorruption kMetadataCorruptions[] = {
    {"strides that are text",
     [](Index& i) { i.properties.push_back(i.arena.Str("x")); },
     "a TensorProperties"},
    {"properties of seven", [](Index& i) { i.properties.resize(7); },
     "a TensorProperties"},
    {"properties of four", [](Index& i) { i.properties.pop_back(); },
     "a TensorProperties"},
    {"no state",
     [](Index& i) {
       i.root_changes = {{"state_dict_metadata", Value()}};
     },
     "state_dict_metadata"},
    {"no storage",
     [](Index& i) {
       i.root_changes = {{"storage_data", Value()}};
     },
     "storage_data"},
    {"planner is text",
     [](Index& i) {
       i.root_changes = {{"planner_data", i.arena.Str("x")}};
     },
     "planner_data"},
    {"version is a number",
     [](Index& i) {
       i.root_changes = {{"version", Value::Int(1)}};
     },
     "version"},
    {"name is a number",
     [](Index& i) {
       i.more_state = {{Value::Int(5), Value()}};
     },
     "a name"},
    {"value is text",
     [](Index& i) {
       i.more_state = {{i.arena.Str("x"), i.arena.Str("y")}};
     },
     "a TensorStorageMetadata"},
    {"name twice",
     [](Index& i) {
       i.more_state = {{i.arena.Str("step"), i.arena.Str("y")}};
     },
     "step occurs twice"},
    {"chunk without storage", [](Index& i) { i.storage.pop_back(); },
     "chunk at [2, 0]: storage_data has no entry"},
    {"bytes without storage",
     [](Index& i) { i.storage.erase(i.storage.begin()); },
     "step: storage_data has no entry"},
    {"bytes with an offset",
     [](Index& i) { i.storage[0].first = i.Key("step", Value(), i.Size({0})); },
     "step: storage_data has no entry"},
    {"storage twice", [](Index& i) { i.storage.push_back(i.storage[1]); },
     "same offset occurs twice"},
    {"chunk twice", [](Index& i) { i.chunks.push_back(i.chunks[0]); },
     "another chunk has the same offset"},
    {"chunk past the end",
     [](Index& i) {
       i.chunks[1] = i.Chunk({2, 0}, {3, 3});
     },
     "is not inside the tensor"},
    {"chunk overflows",
     [](Index& i) {
       i.chunks[1] = i.Chunk({INT64_MAX, 0}, {INT64_MAX, 3});
     },
     "is not inside the tensor"},
    {"negative offset",
     [](Index& i) {
       i.chunks[0] = i.Chunk({-1, 0}, {2, 3});
     },
     "a dimension"},
    {"other dimensions", [](Index& i) { i.chunks[0] = i.Chunk({0}, {6}); },
     "is not inside the tensor"},
    {"size overflows",
     [](Index& i) {
       i.size = i.Size({int64_t{1} << 40, int64_t{1} << 40});
     },
     "exceeds 64 bits"},
    {"65 dimensions",
     [](Index& i) { i.size = i.Size(std::vector<int64_t>(65, 1)); },
     "65 dimensions exceed 64"},
    {"float dimension",
     [](Index& i) {
       i.size = i.Call1("torch", "Size", i.arena.Tuple({Value::Float(4)}));
     },
     "a dimension"},
    {"dtype is text",
     [](Index& i) { i.properties[0] = i.arena.Str("float32"); }, "the dtype"},
    {"sparse layout",
     [](Index& i) {
       i.properties[1] = i.Call1("torch.serialization", "_get_layout",
                                 i.arena.Str("torch.sparse_coo"));
     },
     "torch.sparse_coo"},
    {"memory format 3",
     [](Index& i) {
       i.properties[3] =
           i.Call1(kMetadataModule, "_MEM_FORMAT_ENCODING", Value::Int(3));
     },
     "memory format"},
    {"enum by another name",
     [](Index& i) { i.properties[3] = Getattr(i, "__class__"); },
     "builtins.getattr"},
    {"file above", SetFile("../x"), "'..' component"},
    {"absolute file", SetFile("/etc/hostname"), "absolute"},
    {"empty file", SetFile(""), "empty"},
    {"file is the directory", SetFile("."), "'.' or"},
    {"file name with NUL", SetFile(absl::string_view("a\0b", 3)), "NUL"},
    {"file is a number", SetInfo(0, 5), "relative_path"},
    {"negative file offset", SetInfo(1, -1), "offset"},
    {"negative length", SetInfo(2, -5), "length"},
    {"no length", SetInfo(2, 0), "length 0"},
    {"offset and length overflow", SetInfo(1, INT64_MAX), "exceed 63 bits"},
    {"transform",
     [](Index& i) {
       i.info.emplace_back("transform_descriptors",
                           i.arena.List({i.arena.Str("stream.zstd/1")}));
     },
     "stream.zstd/1"},
    {"transforms are a number",
     [](Index& i) {
       i.info.emplace_back("transform_descriptors", Value::Int(7));
     },
     "transform_descriptors"},
    {"attribute twice", [](Index& i) { i.info.push_back(i.info[1]); },
     "offset twice"},
    {"empty path", [](Index& i) { i.path_of_w = i.arena.Tuple({}); },
     "the path"},
    {"path with a float",
     [](Index& i) { i.path_of_w = i.arena.Tuple({Value::Float(1)}); },
     "a path element"},
    {"same path twice", [](Index& i) { i.path_of_step = i.path_of_w; },
     "planner_data"},
    {"path through a leaf",
     [](Index& i) {
       i.path_of_step = i.arena.Tuple({i.arena.Str("w"), i.arena.Str("x")});
     },
     "planner_data"},
    {"mcore_data is a list",
     [](Index& i) {
       i.root_changes = {{"mcore_data", i.arena.List()}};
     },
     "mcore_data has an unexpected value"},
    {"a name in mcore_data is a number",
     [](Index& i) { i.SetMcoreData(Value::Int(1), i.arena.Dict()); },
     "a name in mcore_data"},
    {"mcore_data of a tensor is a list",
     [](Index& i) { i.SetMcoreData(i.arena.Str("w"), i.arena.List()); },
     "mcore_data of w"},
    {"negative shape in mcore_data",
     [](Index& i) {
       i.Reformulate("w", i.Ints({-4, 3}));
     },
     "mcore_data of w: a shape"},
    {"65 dimensions in mcore_data",
     [](Index& i) { i.Reformulate("w", i.Ints(std::vector<int64_t>(65))); },
     "mcore_data of w: a shape"},
    {"mcore_data has a shape for bytes",
     [](Index& i) { i.Reformulate("step", i.Ints({})); },
     "mcore_data of step: it has a shape but is not a tensor"},
    {"huge list index",
     [](Index& i) {
       i.path_of_w =
           i.arena.Tuple({i.arena.Str("w"), Value::Int(int64_t{1} << 40)});
     },
     "planner_data"},
};

TEST(DcpMetadata, RefusesCorruption) {
  for (const MetadataCorruption& corruption : kMetadataCorruptions) {
    Index index;
    corruption.corrupt(index);
    const absl::Status status = ParseMetadata(index).status();
    EXPECT_FALSE(status.ok()) << corruption.name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(corruption.message))
        << corruption.name;
  }
}

TEST(DcpMetadata, RefusesOtherFiles) {
  EXPECT_THAT(ParseDcpMetadata(AsBytes("")),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(ParseDcpMetadata(AsBytes("\x80\x02N.")),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("a Metadata")));
  // A call that is carried out as plain data.
  EXPECT_THAT(ParseDcpMetadata(AsBytes(absl::StrCat(
                  "c_codecs\nencode\n",
                  absl::string_view("\x8c\001a\x8c\006latin1\x86R.", 14)))),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("a Metadata")));
  EXPECT_THAT(
      ParseDcpMetadata(AsBytes("\x80\x02"
                               "cos\nsystem\n.")),
      StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("os.system")));
}

}  // namespace
}  // namespace dcp
