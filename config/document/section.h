// SPDX-License-Identifier: Apache-2.0
// Section: reads one map of a config by the keys that a dialect knows, reports
// wrong values, and finally names the unknown keys, each with the nearest known
// one. For one thread.
//
//   Section parallelism(*root.Find("parallelism"), findings);
//   parallelism.Read("data_parallel_shard_degree", {.least = -1},
//                    config.mesh.data_parallel_shard_degree);
//   parallelism.Ignore("pipeline_parallel_schedule",
//                      "models are not cut into stages");
//   parallelism.Finish();
#ifndef CONFIG_DOCUMENT_SECTION_H_
#define CONFIG_DOCUMENT_SECTION_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "config/document/document.h"
#include "config/document/findings.h"
#include "config/document/scalar.h"
#include "config/document/setting.h"
#include "dcp/tensor/dtype.h"

namespace fsdp::config {

struct IntegerRange {
  int64_t least = 0;
  int64_t most = std::numeric_limits<int64_t>::max();
};
struct RealRange {
  double least = 0;
  double most = std::numeric_limits<double>::max();
};
template <typename T>
using Choices = std::vector<std::pair<absl::string_view, T>>;

class Section {
 public:
  // A node that is not a map is a problem and reads as an empty one; null is an
  // empty map. Both arguments must outlive this.
  Section(const Node& map, Findings& findings);

  // The value of a key, which is known from then on; null if it is absent, or
  // null in the file. If several names mean one thing, the first that is
  // present counts, and a second one is a problem.
  const Node* Find(absl::string_view key);
  const Node* Find(const std::vector<absl::string_view>& names);

  // Each leaves the setting unchanged if the key is absent, adds a problem if
  // the value has another kind, and returns whether it set it. Booleans are
  // true, yes, on, y, t, 1 and their opposites, in any case.
  bool Read(absl::string_view key, Setting<bool>& setting);
  bool Read(absl::string_view key, IntegerRange range,
            Setting<int64_t>& setting);
  bool Read(absl::string_view key, IntegerRange range,
            Setting<std::optional<int64_t>>& setting);
  bool Read(absl::string_view key, RealRange range,
            Setting<std::optional<double>>& setting);
  bool Read(absl::string_view key, Setting<std::string>& setting);
  // A list of strings, or one string with commas between them.
  bool Read(absl::string_view key, Setting<std::vector<std::string>>& setting);
  // "bfloat16" or "bf16" and so on; see DtypeNamed.
  bool Read(absl::string_view key, Setting<dcp::DType>& setting);
  // One of several words, in any case.
  template <typename T>
  bool Read(absl::string_view key, const Choices<T>& choices,
            Setting<T>& setting);

  // For a key that nothing here reads, as the reason says: adds an ignored
  // finding if it is present.
  void Ignore(absl::string_view key, absl::string_view reason);
  // Adds a problem if the key is present with another value than `harmless` (as
  // written, in any case; null, empty maps and empty lists are harmless too).
  void Refuse(absl::string_view key, absl::string_view harmless,
              absl::string_view reason);

  // Both report the keys that were not asked for. Finish: each is a problem.
  // FinishLenient: a key is a problem only if it looks like a misspelt known
  // one, or asks for sharding, an optimizer or a learning rate; `reason` says
  // why the others have no effect.
  void Finish();
  void FinishLenient(absl::string_view reason);

  const Node& node() const { return *map_; }
  Findings& findings() { return *findings_; }

 private:
  // The index of the choice; nothing after a problem.
  std::optional<size_t> ReadChoice(absl::string_view key,
                                   const std::vector<absl::string_view>& words,
                                   SourceLocation& place);

  const Node* map_;
  Findings* findings_;
  std::vector<std::string> known_;
};

template <typename T>
bool Section::Read(absl::string_view key, const Choices<T>& choices,
                   Setting<T>& setting) {
  std::vector<absl::string_view> words;
  for (const auto& [word, value] : choices) words.push_back(word);
  SourceLocation place;
  const std::optional<size_t> index = ReadChoice(key, words, place);
  if (!index.has_value()) return false;
  setting = Setting<T>(choices[*index].second, std::move(place));
  return true;
}

}  // namespace fsdp::config

#endif  // CONFIG_DOCUMENT_SECTION_H_
