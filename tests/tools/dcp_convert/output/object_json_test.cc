// SPDX-License-Identifier: Apache-2.0

#include "tools/dcp_convert/output/object_json.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "dcp/format/value/value.h"
#include "dcp/tensor/dtype.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace dcp::tools {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::HasSubstr;

class ObjectJsonTest : public ::testing::Test {
 protected:
  std::string JsonText(Value value, const ObjectJsonLimits& limits = {}) {
    ObjectEntry object;
    object.located = true;
    object.value = value;
    std::string text = ObjectJson(object, limits);
    EXPECT_TRUE(Json::accept(text)) << text;
    return text;
  }
  Value Str(absl::string_view text) { return arena_.Str(text); }
  Value MakeCall(absl::string_view module, absl::string_view name,
                 const std::vector<Value>& args = {}) {
    return arena_.Call(arena_.Global(module, name), arena_.Tuple(args));
  }

  ValueArena arena_;
};

TEST_F(ObjectJsonTest, JsonTypesStay) {
  EXPECT_EQ(JsonText(Value()), "null");
  EXPECT_EQ(JsonText(Value::Bool(true)), "true");
  EXPECT_EQ(JsonText(Value::Float(0.1)), "0.1");
  EXPECT_EQ(JsonText(Value::Float(1)), "1.0");
  EXPECT_EQ(JsonText(Value::Float(1e22)), "1e+22");
  EXPECT_EQ(JsonText(Value::Float(-0.0)), "-0.0");
  EXPECT_EQ(JsonText(Str("a\"b\n")), R"("a\"b\n")");
  EXPECT_EQ(JsonText(arena_.List({Value::Int(1), arena_.List()})), "[1,[]]");
  EXPECT_EQ(JsonText(arena_.Dict({Str("b"), Value::Int(1), Str("a"), Value()})),
            R"({"b":1,"a":null})");
}

TEST_F(ObjectJsonTest, IntegersAreExact) {
  EXPECT_EQ(JsonText(Value::Int(9007199254740993)), "9007199254740993");
  EXPECT_EQ(JsonText(Value::Int(std::numeric_limits<int64_t>::min())),
            "-9223372036854775808");
  // 2 to the power of 64.
  EXPECT_EQ(JsonText(arena_.BigInt(absl::string_view("\0\0\0\0\0\0\0\0\1", 9))),
            "18446744073709551616");
}

TEST_F(ObjectJsonTest, OtherTypesHaveATag) {
  EXPECT_EQ(JsonText(Value::Float(std::nan(""))),
            R"({"$type":"float","value":"nan"})");
  EXPECT_EQ(JsonText(Value::Float(-HUGE_VAL)),
            R"({"$type":"float","value":"-inf"})");
  EXPECT_EQ(JsonText(arena_.Bytes("\xff!")),
            R"({"$type":"bytes","base64":"/yE="})");
  EXPECT_EQ(JsonText(Str("\xff!")), R"({"$type":"str","base64":"/yE="})");
  EXPECT_EQ(JsonText(arena_.Tuple({Value::Int(1)})),
            R"({"$type":"tuple","items":[1]})");
  EXPECT_EQ(JsonText(MakeCall("builtins", "set",
                              {arena_.List({Value::Int(1), Value::Int(2)})})),
            R"({"$type":"set","items":[1,2]})");
  EXPECT_EQ(JsonText(MakeCall("builtins", "frozenset")),
            R"({"$type":"frozenset","items":[]})");
  EXPECT_EQ(JsonText(arena_.Global("torch", "float32")),
            R"({"$type":"global","module":"torch","name":"float32"})");
}

TEST_F(ObjectJsonTest, DictsWithOtherKeysAreListsOfPairs) {
  EXPECT_EQ(JsonText(arena_.Dict({Value::Int(1), Str("a")})),
            R"({"$type":"dict","items":[[1,"a"]]})");
  EXPECT_EQ(JsonText(arena_.Dict({Str("$type"), Str("a")})),
            R"({"$type":"dict","items":[["$type","a"]]})");
  EXPECT_EQ(
      JsonText(arena_.Dict({Str("a"), Value::Int(1), Str("a"), Value::Int(2)})),
      R"({"$type":"dict","items":[["a",1],["a",2]]})");
}

TEST_F(ObjectJsonTest, ObjectsNameTheirClassAndContents) {
  const Value dict = MakeCall("collections", "OrderedDict");
  arena_.Update(dict, {Value::Int(1), arena_.Tuple({})});
  EXPECT_EQ(JsonText(dict), R"({"$type":"collections.OrderedDict",)"
                            R"("items":[[1,{"$type":"tuple","items":[]}]]})");
  const Value object = MakeCall("my.module", "Config", {Value::Int(3)});
  arena_.Append(object, Str("e"));
  arena_.SetState(object, arena_.Dict({Str("x"), Value::Bool(false)}));
  EXPECT_EQ(JsonText(object),
            R"({"$type":"my.module.Config","args":[3],"elements":["e"],)"
            R"("state":{"x":false}})");
}

TEST_F(ObjectJsonTest, TensorsAreDescribed) {
  ObjectEntry object;
  object.located = true;
  const Value tensor = MakeCall("torch._utils", "_rebuild_tensor_v2");
  TensorEntry& entry = object.tensors[tensor.identity()];
  entry.dtype = DType::kBFloat16;
  entry.shape = {2, 3};
  object.value = arena_.List({tensor});
  EXPECT_EQ(ObjectJson(object),
            R"([{"$type":"tensor","dtype":"bfloat16","shape":[2,3]}])");
}

TEST_F(ObjectJsonTest, NamesPartsBeyondTheLimit) {
  std::vector<Value> many(1000, Value::Int(1234567));
  const std::string list = JsonText(arena_.List(many), {.max_bytes = 100});
  EXPECT_LT(list.size(), 200u);
  EXPECT_THAT(list, HasSubstr(R"({"$type":"cut","limit":"max_bytes",)"
                              R"("num_left":987}])"));
  EXPECT_EQ(
      JsonText(arena_.Dict({Str("a"), Str(std::string(50, 'x')), Str("b"),
                            Value::Int(1)}),
               {.max_bytes = 55}),
      R"({"a":")" + std::string(50, 'x') +
          R"(","$cut":{"$type":"cut","limit":"max_bytes","num_left":1}})");
  EXPECT_EQ(JsonText(Str(std::string(200, 'x')), {.max_bytes = 100}),
            R"({"$type":"cut","limit":"max_bytes","num_left":200})");
  Value deep = Value::Int(1);
  for (int i = 0; i < 900; ++i) deep = arena_.List({deep});
  const std::string text = JsonText(deep);
  EXPECT_THAT(text, HasSubstr(R"("limit":"max_depth")"));
  EXPECT_LT(text.size(), 1000u);
}

}  // namespace
}  // namespace dcp::tools
