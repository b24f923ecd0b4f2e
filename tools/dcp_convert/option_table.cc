// Tested by tests/tools/dcp_convert/command_line_test.cc.
#include "tools/dcp_convert/option_table.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "dcp/base/limits.h"
#include "dcp/base/status.h"
#include "tools/dcp_convert/mesh_options.h"
#include "tools/options/option_setters.h"
#include "tools/terminal/quantity.h"

namespace dcp::tools {
namespace {

// The most a user may request; whether it helps depends on the machine.
constexpr uint32_t kMaxLanes = 256;

constexpr uint32_t kWriting =
    VerbBit(Verb::kConvert) | VerbBit(Verb::kReshard) |
    VerbBit(Verb::kConsolidate) | VerbBit(Verb::kDcpToTorch) |
    VerbBit(Verb::kTorchToDcp);
constexpr uint32_t kPlacing = VerbBit(Verb::kConvert) |
                              VerbBit(Verb::kReshard) |
                              VerbBit(Verb::kTorchToDcp);
// Verbs that may write safetensors.
constexpr uint32_t kWholeTensors =
    VerbBit(Verb::kConvert) | VerbBit(Verb::kConsolidate);
constexpr uint32_t kInspect = VerbBit(Verb::kInspect);
constexpr uint32_t kVerify = VerbBit(Verb::kVerify);
constexpr uint32_t kDiff = VerbBit(Verb::kDiff);
constexpr uint32_t kJobs = VerbBit(Verb::kJobs);
constexpr uint32_t kWorkers = VerbBit(Verb::kWorkers);
constexpr uint32_t kClean = VerbBit(Verb::kClean);
constexpr uint32_t kSharing = kWriting | kVerify;
constexpr uint32_t kLocal = kInspect | kVerify | kDiff | kWriting;
constexpr uint32_t kRemote = kLocal | kJobs;
constexpr uint32_t kAll = kRemote | kWorkers | kClean;

absl::Status SetTensors(absl::string_view value, CommandLine& line) {
  if (value.empty()) return IsNot(value, "a pattern of names");
  line.tensors_glob = std::string(value);
  return absl::OkStatus();
}

absl::Status SetSample(absl::string_view value, CommandLine& line) {
  double percent = 0;
  absl::string_view number = value;
  if (!number.empty() && number.back() == '%') number.remove_suffix(1);
  // Written so that NaN is refused.
  if (!absl::SimpleAtod(number, &percent) || !(percent > 0) ||
      !(percent <= 100)) {
    return IsNot(value, "a percentage above 0 and up to 100");
  }
  line.sample_percent = percent;
  return absl::OkStatus();
}

Tolerance& ToleranceOf(CommandLine& line) {
  if (!line.tolerance.has_value()) line.tolerance.emplace();
  return *line.tolerance;
}

template <double Tolerance::*kField>
absl::Status SetTolerance(absl::string_view value, CommandLine& line) {
  double number = 0;
  // Written so that NaN is refused.
  if (!absl::SimpleAtod(value, &number) || !(number >= 0) ||
      std::isinf(number)) {
    return IsNot(value, "a number that is not negative");
  }
  ToleranceOf(line).*kField = number;
  return absl::OkStatus();
}

absl::Status SetNoEqualNan(absl::string_view, CommandLine& line) {
  ToleranceOf(line).equal_nan = false;
  return absl::OkStatus();
}

absl::Status SetTo(absl::string_view value, CommandLine& line) {
  line.to_dialect = std::nullopt;
  if (value == DialectName(Dialect::kAccelerate)) {
    line.to = Format::kDcp;
    line.to_dialect = Dialect::kAccelerate;
    return absl::OkStatus();
  }
  const absl::StatusOr<Format> format = ParseFormat(value);
  if (!format.ok()) {
    return IsNot(value, "dcp, safetensors, pt or accelerate");
  }
  line.to = *format;
  return absl::OkStatus();
}

absl::Status AddTo(absl::string_view value, absl::string_view expected,
                   std::vector<std::string>& list) {
  if (value.empty()) return IsNot(value, expected);
  list.emplace_back(value);
  return absl::OkStatus();
}

absl::Status AddInclude(absl::string_view value, CommandLine& line) {
  return AddTo(value, "a pattern of names", line.selection.include);
}

absl::Status AddExclude(absl::string_view value, CommandLine& line) {
  return AddTo(value, "a pattern of names", line.selection.exclude);
}

absl::Status AddRename(absl::string_view value, CommandLine& line) {
  return AddTo(value, "a rule such as 's/^model\\.//'", line.selection.renames);
}

absl::Status AddCast(absl::string_view value, CommandLine& line) {
  const size_t equals = value.rfind('=');
  const absl::string_view name =
      equals == absl::string_view::npos ? value : value.substr(equals + 1);
  DCP_RETURN_IF_ERROR(ParseDType(name).status());
  return AddTo(value, "a dtype, or GLOB=dtype", line.selection.casts);
}

absl::Status AddMetadata(absl::string_view value, CommandLine& line) {
  const size_t equals = value.find('=');
  if (equals == absl::string_view::npos || equals == 0) {
    return IsNot(value, "KEY=VALUE");
  }
  line.metadata.emplace_back(value.substr(0, equals), value.substr(equals + 1));
  return absl::OkStatus();
}

absl::Status SetMaxMemory(absl::string_view value, CommandLine& line) {
  DCP_ASSIGN_OR_RETURN(line.memory_bytes, ParseSize(value));
  if (line.memory_bytes < kMinMemoryBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", value, "' is less than the minimum, ",
                     FormatMemory(kMinMemoryBytes)));
  }
  return absl::OkStatus();
}

absl::Status SetMaxShardSize(absl::string_view value, CommandLine& line) {
  DCP_ASSIGN_OR_RETURN(line.max_shard_bytes, ParseSize(value));
  if (line.max_shard_bytes == 0) return IsNot(value, "1 byte or more");
  return absl::OkStatus();
}

absl::Status SetDirect(absl::string_view value, CommandLine& line) {
  if (value == "auto") {
    line.direct = DirectMode::kAuto;
  } else if (value == "on") {
    line.direct = DirectMode::kOn;
  } else if (value == "off") {
    line.direct = DirectMode::kOff;
  } else {
    return IsNot(value, "auto, on or off");
  }
  return absl::OkStatus();
}

absl::Status SetLanes(absl::string_view value, CommandLine& line) {
  uint32_t lanes = 0;
  if (!absl::SimpleAtoi(value, &lanes) || lanes < 1 || lanes > kMaxLanes) {
    return IsNot(value, absl::StrCat("a number from 1 to ", kMaxLanes));
  }
  line.num_lanes = lanes;
  return absl::OkStatus();
}

absl::Status SetShare(absl::string_view value, CommandLine& line) {
  const std::pair<absl::string_view, absl::string_view> split =
      absl::StrSplit(value, absl::MaxSplits('/', 1));
  Share share;
  if (!absl::SimpleAtoi(split.first, &share.index) ||
      !absl::SimpleAtoi(split.second, &share.count) ||
      share.index >= share.count) {
    return IsNot(value, "K/N with K from 0 to N - 1");
  }
  line.share = share;
  return absl::OkStatus();
}

absl::Status SetPieceSize(absl::string_view value, CommandLine& line) {
  DCP_ASSIGN_OR_RETURN(line.piece_bytes, ParseSize(value));
  if (line.piece_bytes == 0) return IsNot(value, "1 byte or more");
  return absl::OkStatus();
}

absl::Status SetRank(absl::string_view value, CommandLine& line) {
  int64_t rank = 0;
  if (!absl::SimpleAtoi(value, &rank) || rank < 0) {
    return IsNot(value, "a rank: 0 or more");
  }
  line.rank = rank;
  return absl::OkStatus();
}

absl::Status SetFrom(absl::string_view value, CommandLine& line) {
  const absl::StatusOr<Dialect> from = ParseDialect(value);
  if (!from.ok()) return IsNot(value, DialectNames());
  line.dialect.from = *from;
  return absl::OkStatus();
}

template <std::string DialectOptions::*kField>
absl::Status SetDialectText(absl::string_view value, CommandLine& line) {
  if (value.empty()) return IsNot(value, "a name");
  line.dialect.*kField = std::string(value);
  return absl::OkStatus();
}

absl::Status SetWeights(absl::string_view value, CommandLine& line) {
  if (value != "master" && value != "low") {
    return IsNot(value, "master or low");
  }
  line.dialect.low_precision_weights = value == "low";
  return absl::OkStatus();
}

template <auto kGroup, auto kField>
absl::Status SetFlagOf(absl::string_view, CommandLine& line) {
  (line.*kGroup).*kField = true;
  return absl::OkStatus();
}

absl::Status SetOptimizerNames(absl::string_view value, CommandLine& line) {
  if (value != "stored" && value != "torch") {
    return IsNot(value, "stored or torch");
  }
  line.dialect.torch_optimizer_names = value == "torch";
  return absl::OkStatus();
}

absl::Status AddPart(absl::string_view value, CommandLine& line) {
  const absl::StatusOr<StatePart> part = ParseStatePart(value);
  if (!part.ok()) return IsNot(value, "model, optimizer or extra");
  line.selection.parts.push_back(*part);
  return absl::OkStatus();
}

absl::Status SetProgress(absl::string_view value, CommandLine& line) {
  if (value == "auto") {
    line.progress = ProgressMode::kAuto;
  } else if (value == "plain") {
    line.progress = ProgressMode::kPlain;
  } else if (value == "json") {
    line.progress = ProgressMode::kJson;
  } else if (value == "none") {
    line.progress = ProgressMode::kNone;
  } else {
    return IsNot(value, "auto, plain, json or none");
  }
  return absl::OkStatus();
}

constexpr OptionRow<CommandLine> kOptions[] = {
    {{"tensors", "GLOB", kInspect,
      "list only names that match; * also matches dots"},
     SetTensors},
    {{"chunks", nullptr, kInspect,
      "list every chunk: its box, file, offset, length"},
     SetFlag<&CommandLine::chunks>},
    {{"all", nullptr, kInspect,
      "list every tensor; without it more than 200 are\n"
      "grouped by the beginnings of their names"},
     SetFlag<&CommandLine::all>},
    {{"depth", "N", kInspect,
      "group tensors by the first N components of their\nnames"},
     SetPositive<&CommandLine::depth>},
    {{"limit", "N", kInspect, "list at most N lines in each table"},
     SetPositive<&CommandLine::limit>},
    {{"sample", "PERCENT", kVerify,
      "check this share of the payloads; the structure is\nalways checked "
      "completely"},
     SetSample},
    {{"tensors-only", nullptr, kDiff, "do not compare objects"},
     SetFlag<&CommandLine::tensors_only>},
    {{"atol", "NUMBER", kDiff,
      "elements are equal if |A - B| is at most\n"
      "atol + rtol * |B|, as in torch.allclose; one that is\n"
      "not given is 0; without both, bits are compared"},
     SetTolerance<&Tolerance::atol>},
    {{"rtol", "NUMBER", kDiff, "see --atol"}, SetTolerance<&Tolerance::rtol>},
    {{"no-equal-nan", nullptr, kDiff,
      "compare numbers, as --atol does, and treat NaN as\n"
      "different from NaN"},
     SetNoEqualNan},
    {{"to", "FORMAT", VerbBit(Verb::kConvert) | VerbBit(Verb::kConsolidate),
      "dcp, safetensors, pt, or accelerate: two folders of\nDCP from which "
      "accelerate and the Trainer resume",
      false, "dcp safetensors pt accelerate"},
     SetTo},
    {{"mesh", "[NAME:]SPEC", kPlacing,
      "the ranks to write DCP for: shard=4, dp=2,tp=2;\n"
      "another mesh of the same ranks has a name:\n"
      "experts:efsdp=2,ep=2",
      true},
     AddMesh},
    {{"place", "GLOB[@MESH]=PLACEMENTS", kPlacing,
      "how tensors lie on the mesh, one placement per\n"
      "axis: S(dim), R, SS(dim,factor); or by the names of\n"
      "axes, the first to cut first: tp:S(0),dp:S(0); last\n"
      "match wins",
      true},
     AddPlacement},
    {{"tp-plan", "FILE", kPlacing,
      "the plan of tensor parallelism, YAML or JSON, by\n"
      "which parameters and their optimizer state lie that\n"
      "no --place matches"},
     SetText<&CommandLine::tp_plan>},
    {{"tp-axis", "AXIS", kPlacing, "the axis of --tp-plan; default: tp"},
     SetText<&CommandLine::tp_axis>},
    {{"part", "PART", kDiff | kWriting,
      "take only the model, the optimizer or extra; if it\nis given once, "
      "names lose its name: model.w is w",
      true, "model optimizer extra"},
     AddPart},
    {{"strip-wrappers", nullptr, kDiff | kWriting,
      "leave _fsdp_wrapped_module, _orig_mod,\n_checkpoint_wrapped_module and "
      "a leading module out of\nnames, before they are renamed"},
     SetFlagOf<&CommandLine::selection, &SelectionOptions::strip_wrappers>},
    {{"include", "GLOB", kDiff | kWriting,
      "take only these names; * also matches dots", true},
     AddInclude},
    {{"exclude", "GLOB", kDiff | kWriting, "leave these names out", true},
     AddExclude},
    {{"rename", "s/OLD/NEW/", kDiff | kWriting,
      "rewrite names (RE2 syntax, \\1 for groups, flag g)", true},
     AddRename},
    {{"cast", "[GLOB=]DTYPE", kDiff | kWriting,
      "convert floating tensors: bf16, fp16, fp32, ...;\nlast match wins",
      true},
     AddCast},
    {{"max-shard-size", "SIZE", kWriting,
      "split output into files of at most this size: 5GB"},
     SetMaxShardSize},
    {{"drop-non-tensors", nullptr, kWriting,
      "leave out values that safetensors cannot hold\ninstead of refusing "
      "them"},
     SetFlag<&CommandLine::drop_non_tensors>},
    {{"metadata", "KEY=VALUE", kWholeTensors,
      "set a value of safetensors' __metadata__; those of\nthe source are "
      "kept",
      true},
     AddMetadata},
    {{"drop-metadata", nullptr, kWholeTensors,
      "leave out the __metadata__ of the source"},
     SetFlag<&CommandLine::drop_metadata>},
    {{"no-copy-config", nullptr, kWholeTensors,
      "do not copy config, tokenizer and generation files\nof SRC into a "
      "directory of safetensors"},
     SetFlag<&CommandLine::no_copy_config>},
    {{"strict-cast", nullptr, kWriting,
      "refuse a cast if a value is beyond the range of the\nnew type"},
     SetFlag<&CommandLine::strict_cast>},
    {{"no-verify", nullptr, kWriting,
      "do not check what is read against the CRCs and\ndigests that SRC has "
      "of it"},
     SetFlag<&CommandLine::no_verify>},
    {{"drop-unreadable", nullptr, kWriting,
      "leave out objects of unknown classes, which only DCP\nto DCP can carry"},
     SetFlag<&CommandLine::drop_unreadable>},
    {{"overwrite", nullptr, kWriting,
      "replace DST if it is a checkpoint; it stays until\nthe new one is "
      "complete"},
     SetFlag<&CommandLine::overwrite>},
    {{"plan", nullptr, kWriting,
      "write nothing; print the files, the bytes to read\nand write, and the "
      "memory"},
     SetFlag<&CommandLine::plan>},
    {{"workers", nullptr, kSharing,
      "do the share of this worker, as its launcher says:\nsrun, an array of "
      "sbatch, mpirun, torchrun or an\nindexed job of Kubernetes"},
     SetFlag<&CommandLine::workers>},
    {{"num-workers", "N", kSharing,
      "with --workers: how many there are, if the launcher\ndoes not say"},
     SetPositive<&CommandLine::num_workers>},
    {{"share", "K/N", kSharing,
      "do share K, from 0, of the N into which N workers\ndivide the work, "
      "whatever starts them"},
     SetShare},
    {{"piece-size", "SIZE", kSharing,
      "with --workers or --share: about how much a worker\nwrites or "
      "verifies before it records it; the same for\nall workers; default 1GiB"},
     SetPieceSize},
    {{"records", "DIR", kVerify | kWorkers,
      "a folder of what workers find that share a verify"},
     SetText<&CommandLine::records>},
    {{"wait", nullptr, kSharing | kWorkers,
      "wait until all workers are done and DST is there"},
     SetFlag<&CommandLine::wait>},
    {{"wait-for", "SECONDS", kSharing | kWorkers,
      "with --wait: fail after this time"},
     SetPositive<&CommandLine::wait_seconds>},
    {{"discard", nullptr, kWorkers,
      "remove what workers left that will not start again"},
     SetFlag<&CommandLine::discard>},
    {{"older-than", "HOURS", kClean, "only what is older; default 168, a week"},
     SetPositive<&CommandLine::older_than_hours>},
    {{"yes", nullptr, kClean, "remove it"}, SetFlag<&CommandLine::yes>},
    {{"max-memory", "SIZE", kVerify | kDiff | kWriting,
      "memory for payload; default 256MiB, minimum 16MiB"},
     SetMaxMemory},
    {{"lanes", "N", kWriting,
      "threads that move bytes; default: for the machine"},
     SetLanes},
    {{"direct", "MODE", kVerify | kDiff | kWriting, "O_DIRECT: auto, on or off",
      false, "auto on off"},
     SetDirect},
    {{"rank", "N", kLocal,
      "the rank whose index to read, if the checkpoint has\n"
      "one per rank (use_collectives=False)"},
     SetRank},
    {{"from", "NAME", kLocal,
      "read SRC as this, whatever it looks like: dcp,\nsafetensors, pt, "
      "ranks (verl, FSDP1), deepspeed,\naccelerate, transformers, megatron, "
      "torchsnapshot or\nbytecheckpoint",
      false,
      "dcp safetensors pt ranks deepspeed accelerate transformers megatron "
      "torchsnapshot bytecheckpoint"},
     SetFrom},
    {{"rank-files", "PATTERN", kLocal,
      "the files of SRC, one for each rank: w.{rank}.pth"},
     SetDialectText<&DialectOptions::rank_files>},
    {{"layout", "FILE", kLocal,
      "which parameters FSDP1's flat ones consist of; JSON"},
     SetDialectText<&DialectOptions::layout>},
    {{"like", "FILE", kLocal,
      "a file with the shapes of parameters of which SRC\nhas only flat ones"},
     SetDialectText<&DialectOptions::like>},
    {{"flat-units", "GLOB", kLocal,
      "the modules that FSDP1 wrapped, for the state of its\nflat optimizer: "
      "model.layers.*"},
     SetDialectText<&DialectOptions::flat_units>},
    {{"weights", "WHICH", kLocal,
      "DeepSpeed: master, the optimizer's in float32, or\nlow, the model's in "
      "16 bits; default: master",
      false, "master low"},
     SetWeights},
    {{"unstack-layers", nullptr, kLocal,
      "Megatron: each layer as tensors of its own"},
     SetFlagOf<&CommandLine::dialect, &DialectOptions::unstack_layers>},
    {{"optimizer-names", "WHICH", kLocal,
      "Megatron: stored, or torch, as PyTorch names an\noptimizer's state; "
      "default: stored",
      false, "stored torch"},
     SetOptimizerNames},
    {{"server", "ADDRESS", kRemote,
      "let a dcp-server do it, with its paths: host:7420,\n"
      "unix:/run/dcp-server.sock, or a:7420,b:7420, which\n"
      "share a conversion; default: TESSERA_SERVER, if set"},
     SetText<&CommandLine::server>},
    {{"tls", nullptr, kRemote,
      "use TLS; the system's authorities check the server"},
     SetFlag<&CommandLine::tls>},
    {{"tls-ca", "FILE", kRemote,
      "use TLS; this authority checks the server; PEM"},
     SetText<&CommandLine::tls_ca>},
    {{"tls-cert", "FILE", kRemote,
      "the client's certificate, with --tls-key; PEM"},
     SetText<&CommandLine::tls_cert>},
    {{"tls-key", "FILE", kRemote, "the private key of --tls-cert; PEM"},
     SetText<&CommandLine::tls_key>},
    {{"token-file", "FILE", kRemote,
      "the token for the server; default: TESSERA_TOKEN"},
     SetText<&CommandLine::token_file>},
    {{"json", nullptr, kAll, "print one JSON object on standard output"},
     SetFlag<&CommandLine::json>},
    {{"progress", "MODE", kAll, "auto, plain, json or none; on standard error",
      false, "auto plain json none"},
     SetProgress},
    // Parsing handles it separately; the row is for help and suggestions.
    {{"help", nullptr, kAll, "print this text"},
     [](absl::string_view, CommandLine& line) {
       line.action = CommandLine::Action::kHelp;
       return absl::OkStatus();
     }},
};

}  // namespace

const VerbTool& Tool() {
  static const VerbTool kTool = {
      .name = "dcp-convert",
      .verbs = AllVerbs(),
      .other_words = {"help", "man", "completion"},
      .options = OptionsOf(AllOptions()),
      .syntax = {.abbreviations = true},
  };
  return kTool;
}

absl::Span<const OptionRow<CommandLine>> AllOptions() { return kOptions; }

}  // namespace dcp::tools
