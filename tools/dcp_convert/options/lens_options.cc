// SPDX-License-Identifier: Apache-2.0

#include "tools/dcp_convert/options/lens_options.h"

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/lens/mean_weights.h"
#include "dcp/mapping/application/mapping.h"
#include "tools/options/option_setters.h"

namespace dcp::tools {
namespace {

// The block names where no rule file gives them: as in DeepSeek's and gpt-oss'
// files.
constexpr absl::string_view kFloat8 =
    "fp8-128, weight: \"{x:**}.weight\", codes: \"{x:**}.weight\", "
    "scales: \"{x:**}.weight_scale_inv\"";
constexpr absl::string_view kMxfp4 =
    "mxfp4, weight: \"{x:**}_proj\", codes: \"{x:**}_proj_blocks\", "
    "scales: \"{x:**}_proj_scales\"";

// Tensors that are not encoded unless a rule file says so: they have rows and
// columns, but in transformers they are not linear layers, or not quantized
// ones.
constexpr absl::string_view kEncoded =
    "{blocks: {kind: fp8-128, weight: \"{x:**}.weight\", "
    "codes: \"{x:**}.weight\", scales: \"{x:**}.weight_scale_inv\", "
    "except: [\"{x:**}.embed_tokens.weight\", \"embed_tokens.weight\", "
    "\"{x:**}.lm_head.weight\", \"lm_head.weight\", "
    "\"tok_embeddings.weight\", \"output.weight\", "
    "\"{x:**}.wte.weight\", \"{x:**}.wpe.weight\", "
    "\"{x:**}norm.weight\", \"{x:**}.gate.weight\", "
    "\"{x:**}.router.weight\"]}}";

absl::StatusOr<bool> Exists(FileSystem& fs, const std::string& path) {
  const absl::Status status = fs.Stat(path).status();
  if (absl::IsNotFound(status)) return false;
  DCP_RETURN_IF_ERROR(status);
  return true;
}

}  // namespace

absl::Status SetDecode(absl::string_view value, CommandLine& line) {
  if (value != "fp8-128" && value != "mxfp4") {
    return IsNot(value, "fp8-128 or mxfp4");
  }
  line.map.decode = std::string(value);
  return absl::OkStatus();
}

absl::Status SetEncode(absl::string_view value, CommandLine& line) {
  if (value != "fp8-128") return IsNot(value, "fp8-128");
  line.map.encode = true;
  return absl::OkStatus();
}

absl::Status AddEncodeExclude(absl::string_view value, CommandLine& line) {
  line.map.encode_exclude.emplace_back(value);
  return absl::OkStatus();
}

absl::Status SetAdapter(absl::string_view value, CommandLine& line) {
  if (!line.map.adapter.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--adapter is given twice, as ", line.map.adapter, " and as ", value,
        ": merge one, and then the other into the result"));
  }
  line.map.adapter = std::string(value);
  return absl::OkStatus();
}

absl::Status AddAverage(absl::string_view value, CommandLine& line) {
  line.map.average.emplace_back(value);
  return absl::OkStatus();
}

absl::Status SetSourceWeight(absl::string_view value, CommandLine& line) {
  double weight = 0;
  if (!absl::SimpleAtod(value, &weight)) return IsNot(value, "a number");
  line.map.source_weight = weight;
  return absl::OkStatus();
}

absl::Status SetWindow(absl::string_view value, CommandLine& line) {
  line.map.window = ParseMeanWindow(value);
  return line.map.window.has_value()
             ? absl::OkStatus()
             : IsNot(value, "equal, linear or minus-sqrt");
}

absl::StatusOr<MeanTerm> ParseAverage(FileSystem& fs, absl::string_view value) {
  const MeanTerm whole = {.path = std::string(value)};
  const size_t equals = value.rfind('=');
  double weight = 0;
  if (equals == absl::string_view::npos ||
      !absl::SimpleAtod(value.substr(equals + 1), &weight)) {
    return whole;
  }
  const MeanTerm weighted = {.path = std::string(value.substr(0, equals)),
                             .weight = weight};
  DCP_ASSIGN_OR_RETURN(const bool whole_exists, Exists(fs, whole.path));
  if (!whole_exists) return weighted;
  DCP_ASSIGN_OR_RETURN(const bool part_exists, Exists(fs, weighted.path));
  if (!part_exists) return whole;
  return absl::InvalidArgumentError(absl::StrCat(
      "--average ", value, " has two meanings: there are ", whole.path, " and ",
      weighted.path, ", which could have the weight ", value.substr(equals + 1),
      "; write ", whole.path, "=1 for the first, or rename one of them"));
}

absl::Status CheckLenses(const CommandLine& line) {
  if (!line.map.average.empty() &&
      (!line.map.adapter.empty() || !line.map.decode.empty())) {
    return absl::InvalidArgumentError(
        "--average excludes --adapter and --decode: take the mean first, and "
        "convert the result");
  }
  for (const auto& [name, is_there] :
       {std::pair("--source-weight", line.map.source_weight.has_value()),
        std::pair("--window", line.map.window.has_value())}) {
    if (is_there && line.map.average.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(name, " requires --average, of which it is a part"));
    }
  }
  if (!line.map.decode.empty() && IsMapped(line)) {
    return absl::InvalidArgumentError(
        "--decode belongs to conversions without a mapping; with --map, the "
        "blocks of the source's side are decoded");
  }
  if (!line.map.decode.empty() && !line.map.adapter.empty()) {
    return absl::InvalidArgumentError(
        "--decode and --adapter exclude each other: decode first, and merge "
        "the adapter into the result");
  }
  if (!line.map.encode_exclude.empty() && !line.map.encode) {
    return absl::InvalidArgumentError(
        "--encode-exclude says what --encode leaves as it is, which is not "
        "given");
  }
  if (line.map.encode && !line.selection.casts.empty()) {
    return absl::InvalidArgumentError(
        "--encode and --cast exclude each other: cast first, and encode the "
        "result");
  }
  return absl::OkStatus();
}

absl::StatusOr<MapSpec> SpecWithoutRules(const CommandLine& line) {
  const std::string blocks =
      line.map.decode.empty()
          ? ""
          : absl::StrCat("{blocks: {kind: ",
                         line.map.decode == "mxfp4" ? kMxfp4 : kFloat8, "}}");
  DCP_ASSIGN_OR_RETURN(
      Mapping mapping,
      ParseMapping(absl::StrCat("tessera-mapping: 1\nname: computed\n"
                                "sides:\n  stored: ",
                                blocks, "\n  result: ", kEncoded,
                                "\nrules:\n"
                                // A file has at least one rule.
                                "- {stored: '-', result: '-', optional: true}"
                                "\n"),
                   "the options"));
  MapSpec spec{.mapping = std::move(mapping), .options = {}};
  spec.options.from = "stored";
  spec.options.to = "result";
  spec.options.unmatched = MapOptions::Unmatched::kKeep;
  return spec;
}

absl::Status AddLenses(FileSystem& fs, const CommandLine& line, MapSpec& spec) {
  spec.adapter = line.map.adapter;
  spec.encode = line.map.encode;
  spec.encode_exclude = line.map.encode_exclude;
  spec.source_weight = line.map.source_weight.value_or(1);
  bool has_weight = line.map.source_weight.has_value();
  for (const std::string& value : line.map.average) {
    DCP_ASSIGN_OR_RETURN(MeanTerm term, ParseAverage(fs, value));
    has_weight = has_weight || term.path != value;
    spec.average.push_back(std::move(term));
  }
  if (spec.average.empty()) return absl::OkStatus();
  if (line.map.window.has_value()) {
    if (has_weight) {
      return absl::InvalidArgumentError(
          "--window gives every checkpoint its weight, and excludes "
          "--source-weight and --average PATH=WEIGHT");
    }
    const std::vector<double> weights =
        WindowWeights(*line.map.window, spec.average.size() + 1);
    spec.source_weight = weights[0];
    for (size_t i = 0; i < spec.average.size(); ++i) {
      spec.average[i].weight = weights[i + 1];
    }
  }
  return CheckMeanWeights(MeanTerms(line.paths[0], spec));
}

}  // namespace dcp::tools
