// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/lens/quantization.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "dcp/base/option_name.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/lens/model_config.h"
#include "dcp/format/json/json_value.h"
#include "dcp/format/value/value_lookup.h"
#include "dcp/tensor/element.h"

namespace dcp {
namespace {

constexpr absl::string_view kFloat8Blocks = "float8 with scales of blocks";
constexpr absl::string_view kDecodesFloat8 = "fp8-128";

// Two names that differ only in their ends: one for a tensor of scales, and one
// for the codes.
struct NamedPair {
  absl::string_view codes;
  absl::string_view scales;
  absl::string_view scheme;
  // Ordinary models have such names too, so the codes' type counts.
  bool by_type = false;
  absl::string_view decode = "";
};

constexpr NamedPair kPairs[] = {
    {".weight", ".weight_scale_inv", kFloat8Blocks, false, kDecodesFloat8},
    {"", "_scale_inv", kFloat8Blocks},
    {"_blocks", "_scales", "MXFP4", true, "mxfp4"},
    {".weight", ".weight_scale", "codes with weight_scale", true},
    {".weight", ".weight_scales", "codes with weight_scales", true},
    {".weight_packed", ".weight_scale", "packed codes of compressed-tensors"},
    {".weight", ".SCB", "8 bits of bitsandbytes"},
    {".weight", ".weight.absmax", "4 bits of bitsandbytes"},
    {".state1", ".absmax1", "an 8-bit optimizer of bitsandbytes"},
    {".state2", ".absmax2", "an 8-bit optimizer of bitsandbytes"},
    {".qweight", ".qzeros", "GPTQ or AWQ"},
    {".qweight", ".scales", "GPTQ or AWQ"},
    {".W_q", ".scale", "HQQ"},
    {".weight._data", ".weight._scale", "quanto"},
};

// Names that only quantized models have, also if the scales are missing.
constexpr std::pair<absl::string_view, absl::string_view> kAlone[] = {
    {".qweight", "GPTQ or AWQ"},
    {".weight_packed", "packed codes of compressed-tensors"},
};

// The quantization that config.json describes.
struct DeclaredQuantization {
  std::string method;
  std::vector<int64_t> block;
};

// The integers in a list.
std::vector<int64_t> Ints(const std::optional<Value>& list) {
  std::vector<int64_t> ints;
  if (!list.has_value() || !list->is(Value::Kind::kList)) return ints;
  for (const Value& item : list->items()) {
    if (item.is(Value::Kind::kInt)) ints.push_back(item.int_value());
  }
  return ints;
}

// nullopt if `text` does not describe a quantized model. A text that is not
// JSON is not a model's configuration.
std::optional<DeclaredQuantization> ParseConfig(absl::string_view text) {
  ValueArena arena;
  const absl::StatusOr<Value> config = ParseJsonValue(text, arena);
  if (!config.ok()) return std::nullopt;
  std::vector<Value> places = {*config};
  if (const auto inner = FindKey(*config, "text_config")) {
    places.push_back(*inner);
  }
  for (const Value& place : places) {
    for (const absl::string_view key :
         {"quantization_config", "compression_config"}) {
      const std::optional<Value> found = FindKey(place, key);
      if (!found.has_value() || !found->is(Value::Kind::kDict)) continue;
      const std::optional<Value> method = FindKey(*found, "quant_method");
      return DeclaredQuantization{
          .method = method.has_value() && method->is(Value::Kind::kStr)
                        ? std::string(method->text())
                        : "a method without a name",
          .block = Ints(FindKey(*found, "weight_block_size"))};
    }
  }
  return std::nullopt;
}

// Without names, rank 1 would count the states of random generators.
bool AreLikeCodes(const TensorEntry& tensor) {
  return tensor.shape.size() >= 2 && MayBeCodes(tensor.dtype);
}

// torchao's list of tensors that the JSON describes.
bool IsTorchaoList(const std::pair<std::string, std::string>& metadata) {
  return metadata.first == "tensor_names";
}

// Whether the name alone identifies scales, or codes.
bool IsQuantizationName(absl::string_view name) {
  return std::any_of(std::begin(kPairs), std::end(kPairs),
                     [&](const NamedPair& pair) {
                       return absl::EndsWith(name, pair.scales);
                     }) ||
         std::any_of(
             std::begin(kAlone), std::end(kAlone),
             [&](const auto& row) { return absl::EndsWith(name, row.first); });
}

class Marker {
 public:
  explicit Marker(CheckpointParts& parts) : parts_(parts) {
    for (CheckpointEntry& entry : parts.entries) {
      auto* const tensor = std::get_if<TensorEntry>(&entry.value);
      if (tensor != nullptr) tensors_.emplace(entry.fqn, tensor);
    }
  }

  void Mark(const std::optional<DeclaredQuantization>& config) {
    for (const NamedPair& pair : kPairs) MarkPairs(pair, config);
    for (const auto& [name, tensor] : tensors_) {
      for (const auto& [suffix, scheme] : kAlone) {
        if (absl::EndsWith(name, suffix))
          MarkCodes(name, FindOrAddScheme(scheme));
      }
    }
    MarkTorchao();
    if (config.has_value()) MarkConfigured(*config);
    Count();
  }

 private:
  const Quantization* FindOrAddScheme(absl::string_view scheme,
                                      absl::string_view decode = "",
                                      const std::vector<int64_t>& block = {}) {
    for (const auto& known : parts_.quantizations) {
      if (known->scheme == scheme && known->decode == decode) {
        return known.get();
      }
    }
    parts_.quantizations.push_back(std::make_unique<const Quantization>(
        Quantization{.scheme = std::string(scheme),
                     .decode = std::string(decode),
                     .block = block}));
    return parts_.quantizations.back().get();
  }

  void MarkPairs(const NamedPair& pair,
                 const std::optional<DeclaredQuantization>& config) {
    const bool is_other_block = config.has_value() && !config->block.empty() &&
                                config->block != Float8Block();
    for (const auto& [name, scales] : tensors_) {
      absl::string_view stem = name;
      if (!absl::ConsumeSuffix(&stem, pair.scales)) continue;
      const auto codes = tensors_.find(absl::StrCat(stem, pair.codes));
      if (codes == tensors_.end() ||
          (pair.by_type && !MayBeCodes(codes->second->dtype))) {
        continue;
      }
      const Quantization* const scheme =
          pair.scheme == kFloat8Blocks && is_other_block
              ? FindOrAddScheme(
                    absl::StrCat("float8 with scales of blocks of ",
                                 absl::StrJoin(config->block, " x ")),
                    "", config->block)
              : FindOrAddScheme(pair.scheme, pair.decode);
      SetIfNew(*scales, scheme);
      MarkCodes(codes->first, scheme);
    }
  }

  static void SetIfNew(TensorEntry& tensor, const Quantization* scheme) {
    if (tensor.quantization == nullptr) tensor.quantization = scheme;
  }

  // Marks the codes, and the other tensors that their module needs: zero
  // points, scales of scales, activations' scales. A bias is a number.
  void MarkCodes(absl::string_view codes, const Quantization* scheme) {
    SetIfNew(*tensors_.find(codes)->second, scheme);
    const size_t dot = codes.rfind('.');
    if (dot == absl::string_view::npos) return;
    const absl::string_view module = codes.substr(0, dot + 1);
    const std::string below = absl::StrCat(codes, ".");
    for (auto it = tensors_.lower_bound(module);
         it != tensors_.end() && absl::StartsWith(it->first, module); ++it) {
      const absl::string_view rest = it->first.substr(module.size());
      const bool is_own = !absl::StrContains(rest, '.');
      if ((is_own && !absl::EndsWith(rest, "bias") &&
           !absl::EndsWith(rest, "weight")) ||
          absl::StartsWith(it->first, below)) {
        SetIfNew(*it->second, scheme);
      }
    }
  }

  // torchao flattens the tensor M.weight to M._weight_qdata, M._weight_scale
  // and so on, and has JSON about M.weight in the metadata.
  // Source: torchao/prototype/safetensors/safetensors_support.py
  void MarkTorchao() {
    if (std::none_of(parts_.metadata.begin(), parts_.metadata.end(),
                     IsTorchaoList)) {
      return;
    }
    for (const auto& [name, text] : parts_.metadata) {
      const size_t dot = name.rfind('.');
      if (dot == std::string::npos || !absl::StrContains(text, "_type")) {
        continue;
      }
      ValueArena arena;
      const absl::StatusOr<Value> value = ParseJsonValue(text, arena);
      if (!value.ok()) continue;
      const std::optional<Value> type = FindKey(*value, "_type");
      if (!type.has_value() || !type->is(Value::Kind::kStr) ||
          type->text() == "Tensor") {
        continue;
      }
      const std::string prefix =
          absl::StrCat(name.substr(0, dot), "._", name.substr(dot + 1), "_");
      const Quantization* const scheme =
          FindOrAddScheme(absl::StrCat("torchao's ", type->text()));
      for (auto it = tensors_.lower_bound(prefix);
           it != tensors_.end() && absl::StartsWith(it->first, prefix); ++it) {
        SetIfNew(*it->second, scheme);
      }
    }
  }

  // Codes without scales, or in a scheme with other names.
  void MarkConfigured(const DeclaredQuantization& config) {
    const Quantization* scheme = nullptr;
    for (const auto& [name, tensor] : tensors_) {
      if (tensor->quantization != nullptr || !AreLikeCodes(*tensor)) continue;
      if (scheme == nullptr) {
        scheme = FindOrAddScheme(absl::StrCat(
            config.method, ", as quantization_config in config.json says"));
      }
      MarkCodes(name, scheme);
    }
  }

  void Count() {
    std::map<const Quantization*, size_t> counts;
    for (const auto& [name, tensor] : tensors_) {
      if (tensor->quantization != nullptr) ++counts[tensor->quantization];
    }
    std::vector<std::string> texts;
    for (const auto& scheme : parts_.quantizations) {
      const auto it = counts.find(scheme.get());
      if (it == counts.end()) continue;
      texts.push_back(
          absl::StrCat(scheme->scheme, ", ", it->second,
                       it->second == 1 ? " tensor" : " tensors",
                       scheme->decode.empty()
                           ? ""
                           : absl::StrCat(", decoded as ", scheme->decode)));
    }
    if (!texts.empty()) {
      parts_.properties.emplace_back("quantized", absl::StrJoin(texts, "; "));
    }
  }

  CheckpointParts& parts_;
  absl::btree_map<absl::string_view, TensorEntry*> tensors_;
};

std::string ConversionAdvice(const Quantization& quantization) {
  return quantization.decode.empty()
             ? "this scheme cannot be decoded here: decode it with the program "
               "that wrote it, or leave such tensors unchanged"
             : absl::StrCat(ToText({"decode"}), " ", quantization.decode,
                            " makes numbers of it first");
}

}  // namespace

std::vector<int64_t> Float8Block() { return {128, 128}; }

bool MayBeCodes(DType dtype) {
  if (dtype == DType::kInt64 || dtype == DType::kBool || IsComplex(dtype)) {
    return false;
  }
  return !IsFloatingPoint(dtype) || ElementSize(dtype) == 1;
}

absl::Status MarkQuantized(FileSystem& fs, absl::string_view path,
                           CheckpointParts& parts) {
  bool has_codes = false;
  bool is_recognised =
      std::any_of(parts.metadata.begin(), parts.metadata.end(), IsTorchaoList);
  for (const CheckpointEntry& entry : parts.entries) {
    if (entry.tensor() == nullptr) continue;
    has_codes = has_codes || AreLikeCodes(*entry.tensor());
    is_recognised = is_recognised || IsQuantizationName(entry.fqn);
  }
  std::optional<DeclaredQuantization> config;
  if (has_codes) {
    DCP_ASSIGN_OR_RETURN(const std::string text, FindModelConfig(fs, path));
    config = ParseConfig(text);
  }
  if (is_recognised || config.has_value()) Marker(parts).Mark(config);
  return absl::OkStatus();
}

absl::Status CheckNotQuantized(absl::string_view name,
                               const TensorEntry& tensor,
                               absl::string_view action) {
  if (tensor.quantization == nullptr) return absl::OkStatus();
  const std::string way_out = ConversionAdvice(*tensor.quantization);
  return WithOptions(absl::FailedPreconditionError(absl::StrCat(
                         name, " is a part of a quantized tensor (",
                         tensor.quantization->scheme, "), so it cannot be ",
                         action, "; ", way_out)),
                     NamedOptions(way_out));
}

std::string WhyNotCast(const TensorEntry& tensor, DType to) {
  if (tensor.dtype == to) return "";
  const std::string stored =
      absl::StrCat("is stored as ", TorchName(tensor.dtype));
  if (!CanConvert(tensor.dtype, to)) {
    return absl::StrCat(stored, ", which cannot be converted to ",
                        TorchName(to));
  }
  if (tensor.quantization == nullptr) return "";
  return absl::StrCat(stored, " and is a part of a quantized tensor (",
                      tensor.quantization->scheme,
                      "), so it cannot be converted to ", TorchName(to), "; ",
                      ConversionAdvice(*tensor.quantization));
}

}  // namespace dcp
