// SPDX-License-Identifier: Apache-2.0
// Lists each option with the verbs that take it, the help and the setter.
// Tested by tests/tools/dcp_convert/options/command_line_test.cc.
#include "tools/dcp_convert/options/option_table.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/files/dialect.h"
#include "tools/dcp_convert/options/lens_options.h"
#include "tools/dcp_convert/options/map_options.h"
#include "tools/dcp_convert/options/mesh_options.h"
#include "tools/dcp_convert/options/option_values.h"
#include "tools/options/option_setters.h"

namespace dcp::tools {
namespace {

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
constexpr uint32_t kMapping = kInspect | kDiff | kWriting;
constexpr uint32_t kMaps = VerbBit(Verb::kMaps);
constexpr uint32_t kRemote = kLocal | kJobs;
constexpr uint32_t kAll = kRemote | kWorkers | kClean | kMaps;

// The longest line in a help text.
constexpr size_t kHelpColumns = 52;

constexpr OptionRow<CommandLine> kOptions[] = {
    {{"tensors", "GLOB", kInspect,
      "list only names that match; * also matches dots"},
     SetTensors},
    {{"chunks", nullptr, kInspect,
      "list every chunk: its box, file, offset, length"},
     SetFlagIn<&InspectFlags::chunks>},
    {{"all", nullptr, kInspect,
      "list every tensor; without it more than 200 are\n"
      "grouped by the beginnings of their names"},
     SetFlagIn<&InspectFlags::all>},
    {{"depth", "N", kInspect,
      "group tensors by the first N components of their\nnames"},
     SetPositiveIn<&InspectFlags::depth>},
    {{"limit", "N", kInspect, "list at most N lines in each table"},
     SetPositiveIn<&InspectFlags::limit>},
    {{"sample", "PERCENT", kVerify,
      "check this share of the payloads; the structure is\nalways checked "
      "completely"},
     SetSample},
    {{"strict", nullptr, kVerify,
      "the exit code is 1 also if a part has no checksum to\ncompare it with"},
     SetFlagIn<&VerifyFlags::strict>},
    {{"tensors-only", nullptr, kDiff, "do not compare objects"},
     SetFlagIn<&DiffFlags::tensors_only>},
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
     AddMesh,
     "mesh other_meshes"},
    {{"place", "GLOB[@MESH]=PLACEMENTS", kPlacing,
      "how tensors lie on the mesh, one placement per\n"
      "axis: S(dim), R, SS(dim,factor); or by the names of\n"
      "axes, the first to cut first: tp:S(0),dp:S(0); last\n"
      "match wins",
      true},
     AddPlacement,
     "placements"},
    {{"tp-plan", "FILE", kPlacing,
      "the plan of tensor parallelism, YAML or JSON, by\n"
      "which parameters and their optimizer state lie that\n"
      "no --place matches"},
     SetTextIn<&WriteFlags::tp_plan>,
     "tensor_parallel"},
    {{"tp-axis", "AXIS", kPlacing, "the axis of --tp-plan; default: tp"},
     SetTextIn<&WriteFlags::tp_axis>},
    {{"part", "PART", kDiff | kWriting,
      "take only the model, the optimizer or extra; if it\nis given once, "
      "names lose its name: model.w is w",
      true, "model optimizer extra"},
     AddPart,
     "parts"},
    {{"strip-wrappers", nullptr, kDiff | kWriting,
      "leave _fsdp_wrapped_module, _orig_mod,\n_checkpoint_wrapped_module and "
      "a leading module out of\nnames, before they are renamed"},
     SetFlagIn<&SelectionOptions::strip_wrappers>},
    {{"include", "GLOB", kDiff | kWriting,
      "take only these names; * also matches dots", true},
     AddInclude},
    {{"exclude", "GLOB", kDiff | kWriting, "leave these names out", true},
     AddExclude},
    {{"rename", "s/OLD/NEW/", kDiff | kWriting,
      "rewrite names (RE2 syntax, \\1 for groups, flag g)", true},
     AddRename,
     "renames"},
    {{"cast", "[GLOB=]DTYPE", kDiff | kWriting,
      "convert floating tensors: bf16, fp16, fp32, ...;\nlast match wins",
      true},
     AddCast,
     "casts"},
    {{"max-shard-size", "SIZE", kWriting,
      "split output into files of at most this size: 5GB"},
     SetMaxShardSize,
     "max_shard_bytes"},
    {{"drop-non-tensors", nullptr, kWriting,
      "leave out values that safetensors cannot hold\ninstead of refusing "
      "them"},
     SetFlagIn<&ConvertSpec::drop_non_tensors>},
    {{"metadata", "KEY=VALUE", kWholeTensors,
      "set a value of safetensors' __metadata__; those of\nthe source are "
      "kept",
      true},
     AddMetadata},
    {{"drop-metadata", nullptr, kWholeTensors,
      "leave out the __metadata__ of the source"},
     SetFlagIn<&ConvertSpec::drop_metadata>},
    {{"no-copy-config", nullptr, kWholeTensors,
      "do not copy config, tokenizer and generation files\nof SRC into a "
      "directory of safetensors"},
     ClearFlagIn<&ConvertSpec::copy_config>},
    {{"assets", "DIR", kWholeTensors,
      "copy those files from this folder; default: next to\n"
      "the config.json of --config, else from SRC"},
     SetTextIn<&ConvertSpec::assets>},
    {{"strict-cast", nullptr, kWriting,
      "refuse a cast if a value is beyond the range of the\nnew type"},
     SetFlagIn<&ConvertSpec::strict_cast>},
    {{"no-verify", nullptr, kWriting,
      "do not check what is read against the CRCs and\ndigests that SRC has "
      "of it"},
     ClearFlagIn<&ConvertSpec::verify>},
    {{"drop-unreadable", nullptr, kWriting,
      "leave out objects of unknown classes, which only DCP\nto DCP can carry"},
     SetFlagIn<&ConvertSpec::drop_unreadable>},
    {{"allow-losses", nullptr, kWriting,
      "convert SRC without what it has and cannot give back,\nsuch as the "
      "shapes of weights, instead of refusing it"},
     SetFlagIn<&ConvertSpec::allow_losses>},
    {{"check", nullptr, kWriting,
      "when DST is there, read it and SRC again, and compare\n"
      "every tensor bit by bit, through --map and as --cast\n"
      "makes it; this doubles the reading; if one differs,\n"
      "DST stays, and the exit code is 1"},
     SetFlagIn<&WriteFlags::check>},
    {{"overwrite", nullptr, kWriting,
      "replace DST if it is a checkpoint; it stays until\nthe new one is "
      "complete"},
     SetFlagIn<&ConvertSpec::overwrite>},
    {{"plan", nullptr, kWriting,
      "write nothing; print the files, the bytes to read\nand write, and the "
      "memory"},
     SetFlagIn<&WriteFlags::plan>},
    {{"workers", nullptr, kSharing,
      "do the share of this worker, as its launcher says:\nsrun, an array of "
      "sbatch, mpirun, torchrun or an\nindexed job of Kubernetes"},
     SetFlagIn<&WorkFlags::by_launcher>},
    {{"num-workers", "N", kSharing,
      "with --workers: how many there are, if the launcher\ndoes not say"},
     SetPositiveIn<&WorkFlags::num_workers>},
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
     SetTextIn<&WorkFlags::records>},
    {{"wait", nullptr, kSharing | kWorkers,
      "wait until all workers are done and DST is there"},
     SetFlagIn<&WorkFlags::wait>},
    {{"wait-for", "SECONDS", kSharing | kWorkers,
      "with --wait: fail after this time"},
     SetPositiveIn<&WorkFlags::wait_seconds>},
    {{"discard", nullptr, kWorkers,
      "remove what workers left that will not start again"},
     SetFlagIn<&WorkersFlags::discard>},
    {{"older-than", "TIME", kClean,
      "only what is older: 30m, 12h, 7d; default 7d"},
     SetOlderThan},
    {{"yes", nullptr, kClean, "remove it"}, SetFlagIn<&CleanFlags::yes>},
    {{"max-memory", "SIZE", kVerify | kDiff | kWriting,
      "memory for payload; default 256MiB, minimum 16MiB"},
     SetMaxMemory,
     "memory_bytes"},
    {{"lanes", "N", kWriting,
      "threads that move bytes; default: for the machine"},
     SetLanes,
     "num_lanes"},
    {{"direct", "MODE", kVerify | kDiff | kWriting, "O_DIRECT: auto, on or off",
      false, "auto on off"},
     SetDirect},
    {{"rank", "N", kLocal,
      "the rank whose index alone to read, if the checkpoint\n"
      "has one per rank (use_collectives=False)"},
     SetRank},
    // Tool() fills in the help and the choices.
    {{"from", "NAME", kLocal, ""}, SetFrom},
    {{"rank-files", "PATTERN", kLocal,
      "the files of SRC, one for each rank: w.{rank}.pth"},
     SetTextIn<&DialectOptions::rank_files>},
    {{"layout", "FILE", kLocal,
      "which parameters FSDP1's flat ones consist of; JSON"},
     SetTextIn<&DialectOptions::layout>},
    {{"like", "FILE", kLocal,
      "a file with the shapes of parameters of which SRC\nhas only flat ones"},
     SetTextIn<&DialectOptions::like>},
    {{"flat-units", "GLOB", kLocal,
      "the modules that FSDP1 wrapped, for the state of its\nflat optimizer: "
      "model.layers.*"},
     SetTextIn<&DialectOptions::flat_units>},
    {{"weights", "WHICH", kLocal,
      "DeepSpeed: master, the optimizer's in float32, or\nlow, the model's in "
      "16 bits; default: master",
      false, "master low"},
     SetWeights,
     "low_precision_weights=low"},
    {{"unstack-layers", nullptr, kLocal,
      "Megatron: each layer as tensors of its own"},
     SetFlagIn<&DialectOptions::unstack_layers>},
    {{"optimizer-names", "WHICH", kLocal,
      "Megatron: stored, or torch, as PyTorch names an\noptimizer's state; "
      "others: stored, or order, if the\noptimizer got its parameters in the "
      "order of the\nmodel; default: stored",
      false, "stored torch order"},
     SetOptimizerNames,
     "torch_optimizer_names=torch optimizer_in_model_order=order"},
    {{"map", "NAME", kMapping,
      "give the tensors the names and shapes of another\n"
      "program: FAMILY-SIDE-to-SIDE, such as\n"
      "llama-hf-to-torchtitan, or auto: as config.json and\n"
      "names say, to --to-side; see dcp-convert maps"},
     SetTextIn<&MapFlags::name>},
    {{"map-file", "FILE", kMapping,
      "the same with a rule file of your own, and --to-side"},
     SetTextIn<&MapFlags::file>},
    {{"from-side", "SIDE", kMapping | kMaps,
      "how SRC spells the model; default: as its names say"},
     SetTextIn<&MapFlags::from_side>},
    {{"to-side", "SIDE", kMapping | kMaps, "how the result spells the model"},
     SetTextIn<&MapFlags::to_side>},
    {{"config", "FILE", kMapping | kMaps,
      "the model's config.json; default: the one in SRC, or\nnext to it"},
     SetTextIn<&MapFlags::config>},
    {{"shapes", "PATH", kMaps,
      "try the tensors of this checkpoint, of which only\n"
      "names and shapes are read; default: made up"},
     SetTextIn<&MapsFlags::shapes>},
    {{"set", "NAME=N", kMapping | kMaps,
      "a number of the mapping or of config.json, such as\n"
      "vocab_multiple=128; repeatable",
      true},
     AddMapSetting},
    {{"at", "SIDE=PREFIX", kMapping,
      "what stands before the names of the model on a side,\n"
      "such as torchtitan=model.; SIDE.states=PREFIX: those\n"
      "of the optimizer's states; repeatable",
      true},
     AddMapPrefix},
    {{"unmatched", "MODE", kMapping,
      "tensors that no rule names: error, keep or drop;\ndefault: error", false,
      "error keep drop"},
     SetUnmatched},
    {{"allow-missing", "GLOB", kMapping,
      "tensors that the mapping requires and that may be\n"
      "missing; repeatable",
      true},
     AddAllowMissing},
    {{"force-family", nullptr, kMapping,
      "map a model whose config.json names another type than\n"
      "the mapping is for"},
     SetFlagIn<&MapFlags::force_family>},
    {{"check-padding", nullptr, kWriting,
      "refuse to leave out padding that is not zero; default:\n"
      "padding is left out unseen"},
     SetFlagIn<&ConvertSpec::check_padding>},
    {{"decode", "KIND", kMapping,
      "compute bfloat16 of codes and scales: fp8-128, as\n"
      "DeepSeek's, or mxfp4, as gpt-oss'; with --map, the\n"
      "mapping says it",
      false, "fp8-128 mxfp4"},
     SetDecode},
    {{"encode", "KIND", kMapping,
      "store the weights of the result as codes and scales:\n"
      "fp8-128, as DeepSeek's; embeddings, heads and routers\n"
      "stay as they are",
      false, "fp8-128"},
     SetEncode},
    {{"encode-exclude", "GLOB", kMapping,
      "weights of the result that are not encoded either;\n"
      "repeatable",
      true},
     AddEncodeExclude},
    {{"adapter", "DIR", kMapping,
      "merge a LoRA adapter, of peft or of a run, into SRC"},
     SetAdapter},
    {{"average", "PATH", kMapping,
      "the mean of SRC and this checkpoint; repeatable.\n"
      "PATH=WEIGHT weighs it (default: 1) if WEIGHT is a\n"
      "number and no file has the whole name",
      true},
     AddAverage},
    {{"source-weight", "NUMBER", kMapping,
      "with --average: the weight of SRC (default: 1)"},
     SetSourceWeight},
    {{"window", "KIND", kMapping,
      "with --average: the weights of SRC, the oldest, and\n"
      "the others in order: equal, linear (1, 2, 3, ...) or\n"
      "minus-sqrt, which stands for a decay by 1 - sqrt(t)",
      false, "equal linear minus-sqrt"},
     SetWindow},
    {{"server", "ADDRESS", kRemote,
      "let a dcp-server do it, with its paths: host:7420,\n"
      "unix:/run/dcp-server.sock, or a:7420,b:7420, which\n"
      "share a conversion; default: TESSERA_SERVER, if set"},
     SetTextIn<&ServerFlags::address>},
    {{"tls", nullptr, kRemote,
      "use TLS; the system's authorities check the server"},
     SetFlagIn<&ServerFlags::tls>},
    {{"tls-ca", "FILE", kRemote,
      "use TLS; this authority checks the server; PEM"},
     SetTextIn<&ServerFlags::ca_file>},
    {{"tls-cert", "FILE", kRemote,
      "the client's certificate, with --tls-key; PEM"},
     SetTextIn<&ServerFlags::cert_file>},
    {{"tls-key", "FILE", kRemote, "the private key of --tls-cert; PEM"},
     SetTextIn<&ServerFlags::key_file>},
    {{"token-file", "FILE", kRemote,
      "the token for the server; default: TESSERA_TOKEN"},
     SetTextIn<&ServerFlags::token_file>},
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

// Words that users of cp, git, restic or huggingface_hub try first.
constexpr Habit kHabits[] = {
    {"force", "--overwrite"},
    {"f", "--overwrite"},
    {"dry-run", "--plan"},
    {"n", "--plan"},
    {"dtype", "--cast"},
    {"torch-dtype", "--cast"},
    {"quiet", "--progress none"},
    {"silent", "--progress none"},
    {"q", "--progress none"},
    {"format", "--to"},
    {"output", "DST"},
    {"output-dir", "DST"},
    {"o", "DST"},
    {"ls", "inspect"},
    {"list", "inspect"},
    {"info", "inspect"},
    {"show", "inspect"},
    {"check", "verify"},
    {"validate", "verify"},
    {"fsck", "verify"},
    {"compare", "diff"},
    {"cp", "convert"},
    {"copy", "convert"},
    {"merge", "consolidate"},
};

// --from's help, in lines.
std::string DialectHelp() {
  const std::string text = absl::StrCat(
      "read SRC as this, whatever it looks like: ",
      absl::StrReplaceAll(DialectNames(), {{"ranks", "ranks (verl, FSDP1)"}}));
  std::string help;
  size_t length = 0;  // in the last line
  for (absl::string_view word : absl::StrSplit(text, ' ')) {
    const bool begins = help.empty();
    const bool fits = length + 1 + word.size() <= kHelpColumns;
    absl::StrAppend(&help, begins ? "" : fits ? " " : "\n", word);
    length = begins || !fits ? word.size() : length + 1 + word.size();
  }
  return help;
}

// The table, with the dialect names, which the library knows.
std::vector<VerbOption> OptionsWithDialects() {
  static const std::string kHelp = DialectHelp();
  static const std::string kChoices =
      absl::StrReplaceAll(DialectNames(), {{" or ", " "}, {",", ""}});
  std::vector<VerbOption> options = ToolOptions(AllOptions());
  for (VerbOption& option : options) {
    if (option.name != absl::string_view("from")) continue;
    option.help = kHelp.c_str();
    option.choices = kChoices.c_str();
  }
  return options;
}

}  // namespace

const VerbTool& Tool() {
  static const VerbTool kTool = {
      .name = "dcp-convert",
      .verbs = AllVerbs(),
      .other_words = {"help", "man", "completion"},
      .habits = kHabits,
      .options = OptionsWithDialects(),
      .syntax = {.abbreviations = true},
  };
  return kTool;
}

absl::Span<const OptionRow<CommandLine>> AllOptions() { return kOptions; }

}  // namespace dcp::tools
