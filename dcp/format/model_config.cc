#include "dcp/format/model_config.h"

#include <optional>

#include "absl/status/status.h"
#include "dcp/format/json.h"
#include "dcp/tensor/dtype.h"

namespace dcp {
namespace {

// Finds tensor types in a text that is known to be valid JSON.
class Scanner {
 public:
  explicit Scanner(absl::string_view json) : json_(json) {}

  std::vector<TextRange> Find() {
    absl::string_view key;  // a key of the outermost object, until its value
    for (; at_ < json_.size(); ++at_) {
      switch (json_[at_]) {
        case '{':
        case '[':
          ++depth_;
          key = {};
          break;
        case '}':
        case ']':
          --depth_;
          break;
        case ',':
          key = {};
          is_value_ = false;
          break;
        case ':':
          is_value_ = true;
          break;
        case '"':
          TakeString(key);
          break;
        default:
          break;
      }
    }
    return found_;
  }

 private:
  // Reads a string, from its first quotation mark to its last.
  void TakeString(absl::string_view& key) {
    const size_t begin = ++at_;
    while (json_[at_] != '"') at_ += json_[at_] == '\\' ? 2 : 1;
    const absl::string_view text = json_.substr(begin, at_ - begin);
    if (depth_ != 1) return;
    if (!is_value_) {
      key = text;
      return;
    }
    if (key != "torch_dtype" && key != "dtype") return;
    const std::optional<DType> dtype = DTypeFromTorchName(text);
    if (dtype.has_value() && IsFloatingPoint(*dtype)) {
      found_.push_back({.offset = begin, .length = text.size()});
    }
  }

  const absl::string_view json_;
  size_t at_ = 0;
  int depth_ = 0;
  bool is_value_ = false;
  std::vector<TextRange> found_;
};

}  // namespace

std::vector<TextRange> FindTensorTypes(absl::string_view json) {
  const absl::Status is_json = ParseJson(json, [](const JsonEvent& event) {
    const bool is_object = event.depth > 0 ||
                           event.kind == JsonEvent::Kind::kBeginObject ||
                           event.kind == JsonEvent::Kind::kEndObject;
    return is_object ? absl::OkStatus()
                     : absl::InvalidArgumentError("not an object");
  });
  return is_json.ok() ? Scanner(json).Find() : std::vector<TextRange>();
}

}  // namespace dcp
