// SPDX-License-Identifier: Apache-2.0

#include "tests/testing/golden.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/types/span.h"
#include "dcp/base/check.h"
#include "dcp/format/json/json.h"

namespace dcp::testing {
namespace {

constexpr absl::string_view kRoot = "tests/golden/";
constexpr absl::string_view kSuffix = ".expected.json";

using Kind = JsonEvent::Kind;

// Fills a GoldenCase from JSON events. The sections are make_golden.py's:
// {"path": ..., "tensors": {name: {...}}, "objects": {...}}.
class Reader {
 public:
  explicit Reader(GoldenCase& golden) : golden_(golden) {}

  absl::Status Handle(const JsonEvent& event) {
    if (event.kind == Kind::kKey) {
      if (event.depth == 1) section_ = std::string(event.text);
      if (event.depth == 2) name_ = std::string(event.text);
      if (event.depth == 3) field_ = std::string(event.text);
    }
    if (event.depth == 1 && event.kind == Kind::kString) {
      if (section_ == "path") golden_.path = std::string(event.text);
      if (section_ == "kind") golden_.kind = std::string(event.text);
    }
    if (event.depth < 2) return absl::OkStatus();
    if (section_ == "tensors") AddToTensor(event);
    if (section_ == "unstacked" && event.kind == Kind::kString &&
        field_ == "sha256") {
      golden_.unstacked[name_] = std::string(event.text);
    }
    if (section_ == "objects" && event.kind != Kind::kKey) AddToObject(event);
    return absl::OkStatus();
  }

 private:
  void AddToTensor(const JsonEvent& event) {
    GoldenTensor& tensor = golden_.tensors[name_];
    if (event.kind == Kind::kString) {
      if (field_ == "dtype") tensor.dtype = std::string(event.text);
      if (field_ == "hex") tensor.bytes = absl::HexStringToBytes(event.text);
    }
    if (event.kind == Kind::kUnsigned) {
      tensor.shape.push_back(static_cast<int64_t>(event.number));
    }
  }

  // Canonical objects consist of arrays, texts, numbers and booleans.
  void AddToObject(const JsonEvent& event) {
    std::string& json = golden_.objects[name_];
    if (event.kind == Kind::kEndArray) {
      json += "]";
      return;
    }
    if (!json.empty() && json.back() != '[') json += ",";
    switch (event.kind) {
      case Kind::kBeginArray:
        json += "[";
        return;
      case Kind::kString:
        json += QuoteJson(event.text);
        return;
      case Kind::kUnsigned:
        absl::StrAppend(&json, event.number);
        return;
      case Kind::kBool:
        json += event.number == 1 ? "\"true\"" : "\"false\"";
        return;
      default:
        DCP_CHECK(false);
    }
  }

  GoldenCase& golden_;
  std::string section_;
  std::string name_;
  std::string field_;
};

std::string CanonicalItems(absl::string_view kind,
                           absl::Span<const Value> items) {
  return absl::StrCat("[\"", kind, "\",[",
                      absl::StrJoin(items, ",",
                                    [](std::string* out, const Value& item) {
                                      *out += Canonical(item);
                                    }),
                      "]]");
}

std::string CanonicalCall(const Value& value) {
  if (value.IsCallOf("torch", "Size")) {
    return absl::StrCat("[\"size\",[",
                        absl::StrJoin(value.args().items()[0].items(), ",",
                                      [](std::string* out, const Value& dim) {
                                        absl::StrAppend(out, dim.int_value());
                                      }),
                        "]]");
  }
  return absl::StrCat("unexpected ", ToString(value));
}

std::string CanonicalDict(absl::Span<const Value> items) {
  std::vector<std::string> pairs;
  for (size_t i = 0; i < items.size(); i += 2) {
    pairs.push_back(absl::StrCat("[", Canonical(items[i]), ",",
                                 Canonical(items[i + 1]), "]"));
  }
  return absl::StrCat("[\"dict\",[", absl::StrJoin(pairs, ","), "]]");
}

}  // namespace

std::string Canonical(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kNone:
      return "[\"none\"]";
    case Value::Kind::kBool:
      return value.bool_value() ? R"(["bool","true"])" : R"(["bool","false"])";
    case Value::Kind::kInt:
    case Value::Kind::kBigInt:
      return absl::StrCat("[\"int\",\"", ToString(value), "\"]");
    case Value::Kind::kFloat:
      // As Python's float.hex().
      if (value.float_value() == 0) return R"(["float","0x0.0p+0"])";
      return absl::StrFormat("[\"float\",\"%.13a\"]", value.float_value());
    case Value::Kind::kStr:
      return absl::StrCat("[\"str\",", QuoteJson(value.text()), "]");
    case Value::Kind::kBytes:
      return absl::StrCat("[\"bytes\",\"", absl::BytesToHexString(value.text()),
                          "\"]");
    case Value::Kind::kTuple:
      return CanonicalItems("tuple", value.items());
    case Value::Kind::kList:
      return CanonicalItems("list", value.items());
    case Value::Kind::kDict:
      return CanonicalDict(value.items());
    case Value::Kind::kGlobal:
      return absl::StrCat("[\"dtype\",\"", value.name(), "\"]");
    default:
      return CanonicalCall(value);
  }
}

GoldenCase ReadGoldenCase(absl::string_view name) {
  GoldenCase golden;
  golden.name = std::string(name);
  Reader reader(golden);
  // The parser does not distinguish true from false, but it does distinguish
  // texts.
  const std::string json =
      absl::StrReplaceAll(ReadFile(absl::StrCat(kRoot, name, kSuffix)),
                          {{R"(["bool", true])", R"(["bool", "true"])"},
                           {R"(["bool", false])", R"(["bool", "false"])"}});
  DCP_CHECK(ParseJson(json, [&](const JsonEvent& event) {
              return reader.Handle(event);
            }).ok());
  golden.path = absl::StrCat(name.substr(0, name.find('/')), "/", golden.path);
  return golden;
}

std::vector<GoldenCase> GoldenCases() {
  std::vector<std::string> names;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(std::string(kRoot))) {
    const std::string path = entry.path().string();
    if (!absl::EndsWith(path, kSuffix)) continue;
    if (absl::StrContains(path, "/dialects/")) continue;
    names.push_back(
        path.substr(kRoot.size(), path.size() - kRoot.size() - kSuffix.size()));
  }
  std::sort(names.begin(), names.end());
  std::vector<GoldenCase> cases;
  cases.reserve(names.size());
  for (const std::string& name : names) cases.push_back(ReadGoldenCase(name));
  return cases;
}

std::string CopyGolden(const TempDir& dir, absl::string_view path) {
  namespace fs = std::filesystem;
  const fs::path from = absl::StrCat(kRoot, path);
  const std::string to = dir.Join(path);
  std::error_code error;
  fs::create_directories(fs::path(to).parent_path(), error);
  fs::copy(from, to, fs::copy_options::recursive, error);
  DCP_CHECK(!error);
  return to;
}

}  // namespace dcp::testing
