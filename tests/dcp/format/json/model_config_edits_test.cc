// SPDX-License-Identifier: Apache-2.0

#include "dcp/format/json/model_config_edits.h"

#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace dcp {
namespace {

using ::testing::IsEmpty;

// `json` with an X for each type that is found.
std::string Marked(std::string json) {
  std::vector<TextRange> ranges = FindTensorTypes(json);
  for (auto range = ranges.rbegin(); range != ranges.rend(); ++range) {
    json.replace(range->offset, range->length, "X");
  }
  return json;
}

TEST(FindTensorTypes, FindsBothKeys) {
  EXPECT_EQ(Marked(R"({"torch_dtype": "float32", "a": 1})"),
            R"({"torch_dtype": "X", "a": 1})");
  EXPECT_EQ(Marked("{\n  \"a\": [1, \"b\"],\n  \"dtype\" : \"bfloat16\"\n}\n"),
            "{\n  \"a\": [1, \"b\"],\n  \"dtype\" : \"X\"\n}\n");
  EXPECT_EQ(Marked(R"({"dtype":"float16","torch_dtype":"float16"})"),
            R"({"dtype":"X","torch_dtype":"X"})");
}

TEST(FindTensorTypes, IgnoresOtherKeys) {
  for (const char* json : {
           R"({"model_type": "llama"})",
           R"({"torch_dtype": null})",
           R"({"torch_dtype": "auto"})",
           R"({"torch_dtype": "int8"})",
           R"({"torch_dtype": {"": "float32"}})",
           R"({"torch_dtype": ["float32"]})",
           R"({"text_config": {"torch_dtype": "float32"}})",
           R"({"a": "torch_dtype", "b": "float32"})",
           R"({"a": "\"torch_dtype\": \"float32\""})",
           R"({"torch_dtype\\": "float32"})",
           R"({"torch_dtype": 1, "b": "float32"})",
           R"(["torch_dtype", "float32"])",
           R"("torch_dtype")",
           R"({"torch_dtype": "float32")",
           "",
       }) {
    EXPECT_THAT(FindTensorTypes(json), IsEmpty()) << json;
  }
}

TEST(FindTensorTypes, FindsTheKeyAfterSubmodels) {
  EXPECT_EQ(Marked(R"({"a": {"dtype": "float32"}, "dtype": "float64"})"),
            R"({"a": {"dtype": "float32"}, "dtype": "X"})");
  EXPECT_EQ(Marked(R"({"a": "\\", "dtype": "float64"})"),
            R"({"a": "\\", "dtype": "X"})");
}

TEST(FindQuantization, FindsTheKeyWithItsValueAndOneComma) {
  const auto without = [](std::string json) {
    const std::optional<TextRange> range = FindQuantization(json);
    return range.has_value() ? json.erase(range->offset, range->length) : "-";
  };
  const std::string key = R"("quantization_config")";
  EXPECT_EQ(without(R"({"a": 1, )" + key + R"(: {"b": "}"}, "c": 2})"),
            R"({"a": 1,  "c": 2})");
  EXPECT_EQ(without(R"({"a": [1, {}], )" + key + R"(: [1, 2] })"),
            R"({"a": [1, {}]})");
  EXPECT_EQ(without("{" + key + ": null}"), "{}");
  EXPECT_EQ(without("{" + key + R"(: "a,b", "c": 1})"), R"({ "c": 1})");
  EXPECT_EQ(without(R"({"a": {)" + key + ": 1}}"), "-");
  EXPECT_EQ(without(R"({"a": )" + key + "}"), "-");
  EXPECT_EQ(without("[" + key + "]"), "-");
  EXPECT_EQ(without("{" + key), "-");
}

TEST(SetQuantization, AddsOrReplacesTheKey) {
  const auto set = [](std::string json) {
    const std::optional<TextEdit> edit = SetQuantization(json, "{\"q\": 1}");
    return edit.has_value()
               ? json.replace(edit->range.offset, edit->range.length, edit->by)
               : "-";
  };
  const std::string key = R"("quantization_config")";
  const std::string member = key + R"(: {"q": 1})";
  EXPECT_EQ(set("{\"a\": 1}"), "{\n  " + member + ",\"a\": 1}");
  EXPECT_EQ(set("{ }"), "{\n  " + member + "\n }");
  EXPECT_EQ(set("{" + key + ": 2}"), "{" + member + "}");
  EXPECT_EQ(set("{" + key + ": 2, \"a\": 1}"), "{" + member + ", \"a\": 1}");
  EXPECT_EQ(set("{\"a\": 1," + key + ": 2}"), "{\"a\": 1, " + member + "}");
  EXPECT_EQ(set("[1]"), "-");
  EXPECT_EQ(set("{"), "-");
}

}  // namespace
}  // namespace dcp
