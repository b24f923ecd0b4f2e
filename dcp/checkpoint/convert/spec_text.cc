// SPDX-License-Identifier: Apache-2.0
// Takes each struct apart by a structured binding, which names all fields: a
// new field does not compile before somebody decides here whether it counts.
// dcp does not know the API's messages, so that their serialization cannot be
// used.
#include "dcp/checkpoint/convert/spec_text.h"

#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "dcp/base/bytes.h"
#include "dcp/base/checksum.h"
#include "dcp/checkpoint/files/map_spec.h"

namespace dcp {
namespace {

// Lines of "name value".
class SpecWriter {
 public:
  void Add(absl::string_view name, absl::string_view value) {
    // The length tells where a value with a line break ends.
    absl::StrAppend(&text_, name, " ", value.size(), " ", value, "\n");
  }
  void Add(absl::string_view name, const std::string& value) {
    Add(name, absl::string_view(value));
  }
  template <typename Number>
  requires std::is_arithmetic_v<Number>
  void Add(absl::string_view name, Number value) {
    absl::StrAppend(&text_, name, " ", value, "\n");
  }
  template <typename Enum>
  requires std::is_enum_v<Enum>
  void Add(absl::string_view name, Enum value) {
    absl::StrAppend(&text_, name, " ", static_cast<int>(value), "\n");
  }
  template <typename Value>
  void Add(absl::string_view name, const std::optional<Value>& value) {
    if (value.has_value()) Add(name, *value);
  }
  template <typename Value>
  void Add(absl::string_view name, const std::vector<Value>& values) {
    for (const Value& value : values) Add(name, value);
  }
  void AddExactly(absl::string_view name, double value) {
    Add(name, absl::StrFormat("%.17g", value));
  }
  // A long text.
  void AddDigest(absl::string_view name, const std::string& value) {
    Add(name, Xxh3Digest(AsBytes(value)));
  }

  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
};

void AddMapOptions(const MapOptions& options, SpecWriter& text) {
  const auto& [from, to, config, settings, parts, unmatched, allow_missing,
               force_family] = options;
  text.Add("map.from", from);
  text.Add("map.to", to);
  text.AddDigest("map.config", config);
  for (const auto& [name, value] : settings) {
    text.Add("map.setting", name);
    text.Add("map.value", value);
  }
  text.Add("map.parts", parts);
  text.Add("map.unmatched", unmatched);
  text.Add("map.allow_missing", allow_missing);
  text.Add("map.force_family", force_family);
}

void AddMap(const MapSpec& map, SpecWriter& text) {
  const auto& [mapping, options, model_from, model_to, states_from, states_to,
               adapter, average, source_weight, encode, encode_exclude] = map;
  // The elements that the mapping expects to be equal do not follow from the
  // places where it puts them.
  text.AddDigest("map.rules", mapping.text());
  AddMapOptions(options, text);
  text.Add("map.model_from", model_from);
  text.Add("map.model_to", model_to);
  text.Add("map.states_from", states_from);
  text.Add("map.states_to", states_to);
  text.Add("map.adapter", adapter);
  for (const auto& [path, weight] : average) {
    text.Add("map.average", path);
    text.AddExactly("map.weight", weight);
  }
  if (!average.empty()) text.AddExactly("map.source_weight", source_weight);
  text.Add("map.encode", encode);
  text.Add("map.encode_exclude", encode_exclude);
}

void AddDialect(const DialectOptions& dialect, SpecWriter& text) {
  // `layout` and `like` are paths, which differ between machines. Their files
  // decide the names and shapes, which are in the plan.
  const auto& [from, rank_files, layout, like, flat_units,
               low_precision_weights, optimizer_in_model_order, unstack_layers,
               torch_optimizer_names] = dialect;
  text.Add("from", from);
  text.Add("rank_files", rank_files);
  text.Add("flat_units", flat_units);
  text.Add("low_precision_weights", low_precision_weights);
  text.Add("optimizer_in_model_order", optimizer_in_model_order);
  text.Add("unstack_layers", unstack_layers);
  text.Add("torch_optimizer_names", torch_optimizer_names);
}

void AddOpen(const OpenOptions& open, SpecWriter& text) {
  // The others say how the source is read.
  const auto& [direct, rank, dialect, map, progress, locate_memory_bytes,
               check_index] = open;
  text.Add("rank", rank);
  AddDialect(dialect, text);
  if (map != nullptr) AddMap(*map, text);
}

void AddSelection(const SelectionOptions& selection, SpecWriter& text) {
  const auto& [parts, strip_wrappers, include, exclude, renames, casts,
               allow_unmatched] = selection;
  text.Add("parts", parts);
  text.Add("strip_wrappers", strip_wrappers);
  text.Add("include", include);
  text.Add("exclude", exclude);
  text.Add("renames", renames);
  text.Add("casts", casts);
  text.Add("allow_unmatched", allow_unmatched);
}

}  // namespace

std::string SpecText(const ConvertSpec& spec) {
  // The layouts show `to`, `to_dialect`, the meshes with their placements,
  // `consolidate` and `max_shard_bytes`, and the files of the plan those of
  // `assets`, which is a path. The others decide whether a conversion begins or
  // succeeds, and no byte.
  const auto& [open, to, to_dialect, mesh, other_meshes, placements,
               tensor_parallel, consolidate, selection, max_shard_bytes,
               drop_non_tensors, drop_unreadable, allow_losses, overwrite,
               verify, strict_cast, drop_metadata, metadata, copy_config,
               assets, check_padding] = spec;
  SpecWriter text;
  AddOpen(open, text);
  AddSelection(selection, text);
  text.Add("drop_non_tensors", drop_non_tensors);
  text.Add("drop_unreadable", drop_unreadable);
  text.Add("drop_metadata", drop_metadata);
  for (const auto& [key, value] : metadata) {
    text.Add("metadata.key", key);
    text.Add("metadata.value", value);
  }
  text.Add("copy_config", copy_config);
  // A worker that does not look would make the others' check void.
  text.Add("check_padding", check_padding);
  return text.Take();
}

}  // namespace dcp
