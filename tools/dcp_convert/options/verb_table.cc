// SPDX-License-Identifier: Apache-2.0
// Describes each verb for help, with examples.
// Tested by tests/tools/dcp_convert/options/help_test.cc.
#include <array>

#include "dcp/base/check.h"
#include "tools/dcp_convert/options/option_table.h"

namespace dcp::tools {
namespace {

constexpr std::array<VerbRow, 12> kVerbs = {{
    {VerbBit(Verb::kInspect), "inspect", "PATH", "show what is in a checkpoint",
     "Prints format, files, tensors with dtype, shape and sharding, and the\n"
     "objects that are not tensors. Reads only the index and small objects.\n",
     "dcp-convert inspect run/step-1000\n"
     "dcp-convert inspect model.safetensors --tensors '*.bias'\n"
     "dcp-convert inspect run/step-1000 --chunks --json | jq .tensors[0]\n"},
    {VerbBit(Verb::kVerify), "verify", "PATH", "check a checkpoint's bytes",
     "Checks the structure, that chunks cover each tensor without gap or\n"
     "overlap, the CRC-32 of every record, and the digests that dcp-convert\n"
     "writes. Prints every problem; the exit code is 1 if there is one, and 6 "
     "if\n"
     "no content was checked, because nothing recorded a checksum of it.\n"
     "Workers share it with --workers or --share, and leave what they find in\n"
     "--records; whoever finds the work of all done prints the whole report.\n",
     "dcp-convert verify run/step-1000\n"
     "dcp-convert verify run/step-1000 --sample 5\n"
     "dcp-convert verify run/step-1000 --workers --records run/check-1000\n"},
    {VerbBit(Verb::kDiff), "diff", "A B", "compare two checkpoints by value",
     "Compares names, shapes, dtypes and bits, whatever the formats, and the\n"
     "objects that are not tensors. Prints what differs and by how much; the\n"
     "exit code is 1 if anything does. --include and --exclude apply to both\n"
     "sides; with --rename they apply to A only, whose new names are looked "
     "up\n"
     "in B. --cast applies to A.\n",
     "dcp-convert diff run/step-1000 model.safetensors --tensors-only\n"
     "dcp-convert diff old.pt new.pt --exclude 'optim.*'\n"
     "dcp-convert diff run/step-1000 model.pt \\\n"
     "    --include 'model.*' --rename 's/^model\\.//'\n"},
    {VerbBit(Verb::kConvert), "convert", "SRC DST",
     "write a checkpoint in another format or sharding",
     "Reads any checkpoint and writes any. The format comes from --to, or "
     "from\n"
     "DST's name: .safetensors; .pt, .pth, .bin or .ckpt; else a directory in "
     "the\n"
     "format of SRC (dcp for a .pt). DST appears whole or not at all. DST - "
     "is\n"
     "standard output: safetensors, or pt with --to. A stream that ends early "
     "is\n"
     "not complete; the exit code is then not 0.\n",
     "dcp-convert convert run/step-1000 model.safetensors --cast bf16\n"
     "dcp-convert convert model.pt sharded --to dcp --mesh shard=8\n"
     "dcp-convert convert run/step-1000 hf --to safetensors \\\n"
     "    --include 'model.*' --rename 's/^model\\.//' \\\n"
     "    --max-shard-size 5GB\n"
     "dcp-convert convert run/step-1000 - | aws s3 cp - "
     "s3://bucket/m.safetensors\n"},
    {VerbBit(Verb::kReshard), "reshard", "SRC DST",
     "write a DCP checkpoint for another mesh",
     "Writes DCP as the ranks of --mesh would have saved it. Without --place "
     "and\n"
     "--tp-plan a tensor is replicated over axes whose name contains 'rep' "
     "and\n"
     "sharded on dimension 0 over all others. Axes named tp, cp, ep, etp or pp "
     "need\n"
     "one of the two, and replicate what neither matches.\n",
     "dcp-convert reshard run/step-1000 out --mesh shard=4\n"
     "dcp-convert reshard run/step-1000 out --mesh shard=64 --share 3/16\n"
     "dcp-convert reshard run/step-1000 out --mesh replicate=2,shard=3\n"
     "dcp-convert reshard run/step-1000 out --mesh dp=2,tp=2 \\\n"
     "    --tp-plan plan.yaml\n"
     "dcp-convert reshard run/step-1000 out --mesh dp=2,tp=2 \\\n"
     "    --place '*.w1.weight=tp:S(0),dp:S(0)'\n"
     "dcp-convert reshard run/step-1000 out --mesh fsdp=4 \\\n"
     "    --mesh experts:efsdp=2,ep=2 \\\n"
     "    --place '*.experts.*@experts=ep:S(0),efsdp:S(0)'\n"},
    {VerbBit(Verb::kConsolidate), "consolidate", "SRC DST",
     "write whole tensors: SHARDED to FULL",
     "Writes every tensor whole, in one file unless --max-shard-size says\n"
     "otherwise. The format comes from DST's name or --to; with --to dcp the\n"
     "checkpoint is that of one rank. DST - is standard output, as in "
     "convert.\n",
     "dcp-convert consolidate run/step-1000 model.pt\n"
     "dcp-convert consolidate run/step-1000 model.safetensors \\\n"
     "    --drop-non-tensors\n"},
    {VerbBit(Verb::kDcpToTorch), "dcp_to_torch", "SRC DST",
     "as python -m torch.distributed.checkpoint.format_utils",
     "Writes a DCP checkpoint as a file that torch.load reads: consolidate\n"
     "--to pt under the name that PyTorch's own tool has.\n",
     "dcp-convert dcp_to_torch run/step-1000 model.pt\n"},
    {VerbBit(Verb::kTorchToDcp), "torch_to_dcp", "SRC DST",
     "as python -m torch.distributed.checkpoint.format_utils",
     "Writes a torch.save file as a DCP checkpoint: convert --to dcp under "
     "the\n"
     "name that PyTorch's own tool has.\n",
     "dcp-convert torch_to_dcp model.pt out\n"
     "dcp-convert torch_to_dcp model.pt out --mesh shard=8\n"},
    {VerbBit(Verb::kJobs), "jobs", "ACTION",
     "list, wait for or cancel jobs of a dcp-server",
     "ACTION is list, wait JOB or cancel JOB: lists the jobs that this client\n"
     "started on a server, waits for one and shows its progress, or cancels "
     "one.\n"
     "With --server, verbs that write start such jobs; wait returns the same\n"
     "exit code as they do.\n",
     "dcp-convert jobs list --server storage:7420\n"
     "dcp-convert jobs wait operations/7 --server storage:7420\n"},
    {VerbBit(Verb::kWorkers), "workers", "DST",
     "how far workers are that share the work",
     "Says which pieces of DST are done, by workers that --workers or --share\n"
     "started, and on which hosts. With --wait, shows the progress of all of "
     "them\n"
     "until DST is there. Workers that died can be started again, also in "
     "another\n"
     "number; --discard removes what they have left. For workers that share a\n"
     "verify, --records takes the place of DST; also prints what they found.\n",
     "dcp-convert workers out\n"
     "dcp-convert workers out --wait --wait-for 3600\n"
     "dcp-convert workers out --discard\n"
     "dcp-convert workers --records run/check-1000\n"},
    {VerbBit(Verb::kClean), "clean", "PATH",
     "remove what killed writers left in an object store",
     "Lists uploads below PATH that were never finished, and data files of DCP "
     "that\n"
     "the index in their folder does not name; with --yes, removes them. "
     "Nothing "
     "can\n"
     "tell a dead writer from a slow one: give --older-than more time than a "
     "save or a\n"
     "conversion takes. On a file system the next writer cleans up itself.\n",
     "dcp-convert clean s3://bucket/run7\n"
     "dcp-convert clean s3://bucket/run7 --older-than 24 --yes\n"},
    {VerbBit(Verb::kMaps), "maps", "ACTION",
     "the mappings between the names of programs",
     "ACTION is one of\n"
     "  list         the families of models that --map knows, and their sides\n"
     "  show FAMILY  the rule file of a family; or between --from-side and\n"
     "               --to-side the rules, with the sizes that --config tells\n"
     "  check FILE   reads a rule file, or a family, and shows by names and "
     "shapes\n"
     "               that a model comes back as it was from every side\n"
     "  test FILE    the same with random tensors, whose bits are compared\n"
     "Without --shapes, models are made up that suit the rules and --config. "
     "The\n"
     "exit code is 1 if something does not come back. See docs/mappings.md.\n",
     "dcp-convert maps list\n"
     "dcp-convert maps show llama-hf-to-torchtitan --config hf/config.json\n"
     "dcp-convert maps check mine.yaml\n"
     "dcp-convert maps test mine.yaml --shapes hf/\n"},
}};

constexpr Action kJobActions[] = {
    {"list", nullptr}, {"wait", "JOB"}, {"cancel", "JOB"}};
constexpr Action kMapActions[] = {
    {"list", nullptr}, {"show", "FAMILY"}, {"check", "FILE"}, {"test", "FILE"}};

}  // namespace

absl::Span<const VerbRow> AllVerbs() { return kVerbs; }

absl::Span<const Action> VerbActions(const VerbRow& verb) {
  switch (VerbForRow(verb)) {
    case Verb::kJobs:
      return kJobActions;
    case Verb::kMaps:
      return kMapActions;
    default:
      return {};
  }
}

const VerbRow& RowForVerb(Verb verb) {
  const VerbRow& row = kVerbs[static_cast<size_t>(verb)];
  DCP_CHECK(row.bit == VerbBit(verb), "the table is not in the order of Verb");
  return row;
}

Verb VerbForRow(const VerbRow& row) {
  return static_cast<Verb>(&row - kVerbs.data());
}

}  // namespace dcp::tools
