// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/torch/torch_tensor.h"

#include <string>
#include <vector>

#include "dcp/format/pickle/pickle_globals.h"
#include "dcp/format/pickle/pickle_reader.h"
#include "dcp/format/pickle/pickle_writer.h"
#include "gtest/gtest.h"
#include "tests/dcp/format/ordered_dict.h"
#include "tests/testing/status_matchers.h"

namespace dcp {
namespace {

using testing::OrderedDict;

using ::dcp::testing::StatusIs;
using ::testing::HasSubstr;

Value Ints(ValueArena& arena, const std::vector<int64_t>& numbers) {
  std::vector<Value> values;
  for (const int64_t number : numbers) values.push_back(Value::Int(number));
  return arena.Tuple(values);
}

// The parts of a tensor's pickle; each test changes one.
struct Parts {
  std::string function = "_rebuild_tensor_v2";
  std::string storage_module = "torch";
  std::string storage_class = "FloatStorage";
  std::string kind = "storage";
  std::string key = "0";
  std::string location = "cpu";
  int64_t numel = 6;
  std::vector<Value> view = {};  // in the storage, none or one value
  int64_t offset = 0;
  std::vector<int64_t> sizes = {2, 3};
  std::vector<int64_t> strides = {3, 1};
  bool requires_grad = false;
  std::vector<Value> more = {};  // arguments behind the hooks
};

std::vector<Value> Args(ValueArena& arena, const Parts& parts) {
  std::vector<Value> id = {
      arena.Str(parts.kind),
      arena.Global(parts.storage_module, parts.storage_class),
      arena.Str(parts.key), arena.Str(parts.location), Value::Int(parts.numel)};
  id.insert(id.end(), parts.view.begin(), parts.view.end());
  std::vector<Value> args = {
      arena.Persistent(arena.Tuple(id)), Value::Int(parts.offset),
      Ints(arena, parts.sizes),          Ints(arena, parts.strides),
      Value::Bool(parts.requires_grad),  OrderedDict(arena)};
  args.insert(args.end(), parts.more.begin(), parts.more.end());
  return args;
}

Value Make(ValueArena& arena, const Parts& parts) {
  return arena.Call(arena.Global("torch._utils", parts.function),
                    arena.Tuple(Args(arena, parts)));
}

TEST(TorchTensor, ReadsAnOrdinaryTensor) {
  ValueArena arena;
  const Value value = Make(arena, {.requires_grad = true});
  EXPECT_TRUE(IsTensor(value));
  ASSERT_OK_AND_ASSIGN(const TorchTensor tensor, ParseTensor(value));
  EXPECT_EQ(tensor.dtype, DType::kFloat32);
  EXPECT_EQ(tensor.sizes, (Dims{2, 3}));
  EXPECT_EQ(tensor.strides, (Dims{3, 1}));
  EXPECT_EQ(tensor.storage_offset, 0u);
  EXPECT_EQ(tensor.storage_key, "0");
  EXPECT_EQ(tensor.storage_bytes, 24u);
  EXPECT_TRUE(tensor.requires_grad);
  EXPECT_FALSE(tensor.is_parameter);
}

TEST(TorchTensor, ViewsMayReachTheStoragesEnd) {
  ValueArena arena;
  EXPECT_OK(ParseTensor(Make(arena, {.numel = 9, .offset = 3})));
  EXPECT_OK(ParseTensor(Make(arena, {.strides = {1, 2}})));
  EXPECT_OK(
      ParseTensor(Make(arena, {.numel = 1, .sizes = {1000}, .strides = {0}})));
  EXPECT_OK(ParseTensor(Make(arena, {.numel = 1, .sizes = {}, .strides = {}})));
}

TEST(TorchTensor, AnEmptyTensorNeedsNoStorage) {
  ValueArena arena;
  ASSERT_OK_AND_ASSIGN(
      const TorchTensor tensor,
      ParseTensor(
          Make(arena,
               {.numel = 0, .offset = 2, .sizes = {1, 0}, .strides = {1, 1}})));
  EXPECT_EQ(tensor.storage_offset, 0u);
  EXPECT_EQ(tensor.sizes, (Dims{1, 0}));
}

TEST(TorchTensor, UntypedStorageTakesItsTypeFromTheTensor) {
  ValueArena arena;
  ASSERT_OK_AND_ASSIGN(
      const TorchTensor tensor,
      ParseTensor(Make(arena, {.function = "_rebuild_tensor_v3",
                               .storage_module = "torch.storage",
                               .storage_class = "UntypedStorage",
                               .numel = 12,
                               .more = {arena.Global("torch", "uint16")}})));
  EXPECT_EQ(tensor.dtype, DType::kUInt16);
  EXPECT_EQ(tensor.storage_bytes, 12u);
}

TEST(TorchTensor, OldTensorsHaveFourArguments) {
  ValueArena arena;
  std::vector<Value> args = Args(arena, {.storage_module = "torch.cuda",
                                         .storage_class = "HalfStorage",
                                         .location = "cuda:1"});
  args.resize(4);
  const Value value = arena.Call(
      arena.Global("torch._utils", "_rebuild_tensor"), arena.Tuple(args));
  ASSERT_OK_AND_ASSIGN(const TorchTensor tensor, ParseTensor(value));
  EXPECT_EQ(tensor.dtype, DType::kFloat16);
}

TEST(TorchTensor, ParametersKeepTheirOwnRequiresGrad) {
  ValueArena arena;
  const Value data = Make(arena, {});
  const auto parameter = [&](absl::string_view name, std::vector<Value> args) {
    return arena.Call(arena.Global("torch._utils", name), arena.Tuple(args));
  };
  const Value plain = parameter("_rebuild_parameter",
                                {data, Value::Bool(true), OrderedDict(arena)});
  EXPECT_TRUE(IsTensor(plain));
  ASSERT_OK_AND_ASSIGN(TorchTensor tensor, ParseTensor(plain));
  EXPECT_TRUE(tensor.is_parameter);
  EXPECT_TRUE(tensor.requires_grad);
  const Value with_state =
      parameter("_rebuild_parameter_with_state",
                {data, Value::Bool(false), OrderedDict(arena), arena.Dict()});
  ASSERT_OK_AND_ASSIGN(tensor, ParseTensor(with_state));
  EXPECT_TRUE(tensor.is_parameter);
  EXPECT_FALSE(tensor.requires_grad);
  EXPECT_THAT(ParseTensor(parameter("_rebuild_parameter", {data})),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(ParseTensor(parameter(
                  "_rebuild_parameter",
                  {arena.Dict(), Value::Bool(true), OrderedDict(arena)})),
              StatusIs(absl::StatusCode::kDataLoss));
}

TEST(TorchTensor, RefusesEndlessWrappers) {
  ValueArena arena;
  Value value = Make(arena, {});
  for (int i = 0; i < 100; ++i) {
    value =
        arena.Call(arena.Global("torch._utils", "_rebuild_parameter"),
                   arena.Tuple({value, Value::Bool(true), OrderedDict(arena)}));
  }
  EXPECT_THAT(ParseTensor(value), StatusIs(absl::StatusCode::kDataLoss,
                                           HasSubstr("more than 4 wrappers")));
}

TEST(TorchTensor, ReadsTensorsWithAttributes) {
  ValueArena arena;
  const auto wrapped = [&](Value type) {
    return arena.Call(
        arena.Global("torch._tensor", "_rebuild_from_type_v2"),
        arena.Tuple({arena.Global("torch._utils", "_rebuild_tensor_v2"), type,
                     arena.Tuple(Args(arena, {})), arena.Dict()}));
  };
  EXPECT_OK(ParseTensor(wrapped(arena.Global("torch", "Tensor"))));
  ASSERT_OK_AND_ASSIGN(
      const TorchTensor tensor,
      ParseTensor(wrapped(arena.Global("torch.nn.parameter", "Parameter"))));
  EXPECT_TRUE(tensor.is_parameter);
  EXPECT_THAT(
      ParseTensor(wrapped(arena.Global("my", "Subclass"))),
      StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("my.Subclass")));
}

TEST(TorchTensor, LazyConjugationAndNegationAreReported) {
  ValueArena arena;
  const Value flags = arena.Dict({arena.Str("conj"), Value::Bool(true),
                                  arena.Str("neg"), Value::Bool(true)});
  ASSERT_OK_AND_ASSIGN(const TorchTensor tensor,
                       ParseTensor(Make(arena, {.more = {flags}})));
  EXPECT_TRUE(tensor.conj);
  EXPECT_TRUE(tensor.neg);
  const Value other = arena.Dict({arena.Str("warp"), Value::Bool(true)});
  EXPECT_THAT(ParseTensor(Make(arena, {.more = {other}})),
              StatusIs(absl::StatusCode::kUnimplemented));
}

TEST(TorchTensor, LegacyViewsOfAStorageMoveTheOffset) {
  ValueArena arena;
  const auto with_view = [&](int64_t offset, int64_t length) {
    return Make(arena,
                {.numel = 20,
                 .view = {arena.Tuple({arena.Str("view"), Value::Int(offset),
                                       Value::Int(length)})},
                 .offset = 1,
                 .sizes = {5},
                 .strides = {1}});
  };
  ASSERT_OK_AND_ASSIGN(const TorchTensor tensor, ParseTensor(with_view(10, 6)));
  EXPECT_EQ(tensor.storage_offset, 11u);
  EXPECT_EQ(tensor.storage_bytes, 80u);
  EXPECT_THAT(ParseTensor(with_view(10, 5)),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_THAT(ParseTensor(with_view(15, 6)),
              StatusIs(absl::StatusCode::kDataLoss));
  EXPECT_OK(ParseTensor(Make(arena, {.view = {Value()}})));
}

struct TensorCorruption {
  absl::string_view name;
  Parts parts;
  absl::string_view message;
  absl::StatusCode code = absl::StatusCode::kDataLoss;
};

constexpr int64_t kHuge = int64_t{1} << 62;

TEST(TorchTensor, RefusesInconsistentTensors) {
  constexpr absl::StatusCode kUnimplemented = absl::StatusCode::kUnimplemented;
  const TensorCorruption kCorruptions[] = {
      {"numel huge", {.numel = kHuge}, "too large"},
      {"numel negative",
       {.numel = -6},
       "length of its storage is not a count: -6"},
      {"storage short", {.numel = 5}, "reaches past its storage"},
      {"stride too long", {.strides = {300, 1}}, "reaches past"},
      {"stride negative",
       {.strides = {-3, 1}},
       "its stride is not a count: -3"},
      {"stride overflow", {.strides = {kHuge, kHuge}}, "reaches past"},
      {"offset negative", {.offset = -1}, "its offset is not a count: -1"},
      {"offset huge", {.offset = kHuge}, "reaches past"},
      {"size negative", {.sizes = {-2, 3}}, "its size is not a count: -2"},
      {"size overflow",
       {.sizes = {kHuge, kHuge}, .strides = {0, 0}},
       "too large"},
      {"size overflow of an empty one",
       {.sizes = {kHuge, kHuge, 0}, .strides = {0, 0, 0}},
       "too large"},
      {"stride missing", {.strides = {1}}, "differ in length"},
      {"too many dimensions",
       {.sizes = std::vector<int64_t>(65, 1),
        .strides = std::vector<int64_t>(65, 1)},
       "65 dimensions exceed 64"},
      {"expansion bomb",
       {.sizes = {int64_t{1} << 40}, .strides = {0}},
       "expands a storage of 6",
       kUnimplemented},
      {"foreign storage class",
       {.storage_module = "os", .storage_class = "FloatStorage"},
       "the storage class os.FloatStorage",
       kUnimplemented},
      {"quantized",
       {.storage_class = "QInt8Storage"},
       "the storage class torch.QInt8Storage",
       kUnimplemented},
      {"module id", {.kind = "module"}, "the id of its storage"},
      {"meta", {.location = "meta"}, "without data", kUnimplemented},
      {"sparse",
       {.function = "_rebuild_sparse_tensor"},
       "_rebuild_sparse_tensor is not supported",
       kUnimplemented},
      {"v3 without dtype", {.function = "_rebuild_tensor_v3"}, "6 arguments"},
      {"v1 with six arguments", {.function = "_rebuild_tensor"}, "6 arguments"},
  };
  for (const TensorCorruption& corruption : kCorruptions) {
    ValueArena arena;
    EXPECT_THAT(ParseTensor(Make(arena, corruption.parts)),
                StatusIs(corruption.code, HasSubstr(corruption.message)))
        << corruption.name;
  }
}

TEST(TorchTensor, RefusesBackwardHooksAndOtherValues) {
  ValueArena arena;
  std::vector<Value> args = Args(arena, {});
  args[5] = OrderedDict(arena);
  arena.Update(args[5], {Value::Int(1), arena.Global("torch", "Tensor")});
  EXPECT_THAT(
      ParseTensor(arena.Call(arena.Global("torch._utils", "_rebuild_tensor_v2"),
                             arena.Tuple(args))),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("hooks")));
  EXPECT_FALSE(IsTensor(arena.Dict()));
  EXPECT_FALSE(IsTensor(OrderedDict(arena)));
  EXPECT_THAT(ParseTensor(arena.Dict()), StatusIs(absl::StatusCode::kDataLoss));
}

TEST(TorchTensor, MadeTensorsParseBack) {
  for (int i = 0; i < kNumDTypes; ++i) {
    const DType dtype = static_cast<DType>(i);
    for (const Dims& sizes : {Dims{}, Dims{0, 3}, Dims{2, 3}}) {
      ValueArena arena;
      const std::string pickle =
          WritePickle(MakeTensor(arena, dtype, sizes, i % 2 == 0, "7"));
      ASSERT_OK_AND_ASSIGN(const PickleResult result,
                           ReadPickle(AsBytes(pickle),
                                      {.allow_global = IsStateDictGlobal,
                                       .allow_persistent_ids = true},
                                      arena));
      ASSERT_OK_AND_ASSIGN(const TorchTensor tensor, ParseTensor(result.root));
      EXPECT_EQ(tensor.dtype, dtype);
      EXPECT_EQ(tensor.sizes, sizes);
      EXPECT_EQ(tensor.strides, RowMajorStrides(sizes));
      EXPECT_EQ(tensor.requires_grad, i % 2 == 0);
      EXPECT_EQ(tensor.storage_key, "7");
      EXPECT_EQ(tensor.storage_bytes,
                static_cast<uint64_t>(Volume(sizes)) * ElementSize(dtype));
    }
  }
}

// A DTensor with 4 rows, `rows` of them on this rank, as PyTorch pickles it.
Value MakeDTensor(ValueArena& arena, int64_t rows, const char* placement) {
  const Value local = MakeTensor(arena, DType::kFloat32, {rows}, false, "0");
  const auto with_state = [&](const char* module, const char* name,
                              const Value& state) {
    const Value object = arena.New(arena.Global(module, name), arena.Tuple({}));
    arena.SetState(object, state);
    return object;
  };
  const char* placements = "torch.distributed.tensor.placement_types";
  const Value spec = with_state(
      "torch.distributed.tensor._dtensor_spec", "DTensorSpec",
      arena.Dict(
          {arena.Str("placements"),
           arena.Tuple({with_state(placements, placement, arena.Dict())})}));
  const Value type = arena.Global("torch.distributed.tensor", "DTensor");
  return arena.Call(
      arena.Global("torch._tensor", "_rebuild_from_type_v2"),
      arena.Tuple(
          {arena.Global("torch._utils", "_rebuild_wrapper_subclass"), type,
           arena.Tuple({type, arena.Global("torch", "float32"),
                        Ints(arena, {4}), Ints(arena, {1}), Value::Int(0)}),
           arena.Tuple({Value(), arena.Dict({arena.Str("_local_tensor"), local,
                                             arena.Str("_spec"), spec})})}));
}

TEST(TorchTensor, AWholeDTensorIsATensor) {
  ValueArena arena;
  for (const char* placement : {"Replicate", "Shard"}) {
    const Value value = MakeDTensor(arena, 4, placement);
    ASSERT_TRUE(IsTensor(value));
    ASSERT_OK_AND_ASSIGN(const TorchTensor tensor, ParseTensor(value));
    EXPECT_EQ(tensor.sizes, Dims({4}));
    EXPECT_EQ(tensor.storage_key, "0");
  }
}

TEST(TorchTensor, RefusesAPartOfADTensor) {
  ValueArena arena;
  EXPECT_THAT(
      ParseTensor(MakeDTensor(arena, 2, "Shard")),
      StatusIs(absl::StatusCode::kUnimplemented,
               HasSubstr("one rank's part, of shape [2], of a DTensor of "
                         "shape [4]")));
  EXPECT_THAT(ParseTensor(MakeDTensor(arena, 4, "Partial")),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("Partial placements")));
}

}  // namespace
}  // namespace dcp
