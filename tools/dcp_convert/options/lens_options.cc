// SPDX-License-Identifier: Apache-2.0

#include "tools/dcp_convert/options/lens_options.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
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

absl::Status CheckLenses(const CommandLine& line) {
  if (!line.map.average.empty() &&
      (IsMapped(line) || !line.map.adapter.empty() ||
       !line.map.decode.empty())) {
    return absl::InvalidArgumentError(
        "--average excludes --map, --map-file, --adapter and --decode: take "
        "the mean first, and convert the result");
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

void AddLenses(const CommandLine& line, MapSpec& spec) {
  spec.adapter = line.map.adapter;
  spec.average = line.map.average;
  spec.encode = line.map.encode;
  spec.encode_exclude = line.map.encode_exclude;
}

}  // namespace dcp::tools
