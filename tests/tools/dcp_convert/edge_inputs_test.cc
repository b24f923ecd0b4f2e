// SPDX-License-Identifier: Apache-2.0
// Small files and folders that once were read wrongly, as the commands see
// them.
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/golden.h"
#include "tests/tools/dcp_convert/command_fixture.h"
#include "tools/dcp_convert/commands/commands.h"

namespace dcp {
namespace {

using ::dcp::testing::Arguments;
using ::dcp::testing::CommandFixture;
using ::dcp::testing::CopyGolden;
using ::testing::HasSubstr;
using ::testing::Not;

class EdgeInputsTest : public CommandFixture {
 protected:
  std::string Golden(const std::string& name) { return CopyGolden(dir_, name); }

  // The verb ends with `code` and says `says`, on either stream.
  void ExpectSays(tools::ExitCode code, const Arguments& arguments,
                  const std::vector<std::string>& says) {
    SCOPED_TRACE(absl::StrJoin(arguments, " "));
    const Done done = Run(arguments);
    EXPECT_EQ(done.code, code) << done.out << done.err;
    for (const std::string& text : says) {
      EXPECT_THAT(done.out + done.err, HasSubstr(text));
    }
  }
};

TEST_F(EdgeInputsTest, FlippedBitInAHeader) {
  const std::string path = Golden("edges/flipped_name.safetensors");
  ExpectSays(tools::kExitFound, {"verify", path},
             {"the header is damaged", "1 problem found"});
  ExpectSays(tools::kExitDone, {"inspect", path},
             {"names, shapes and dtypes may be wrong\n"});
  ExpectRefused({"convert", path, In("o.safetensors")},
                "the header is damaged");
  const std::string sound = Golden("edges/plain.safetensors");
  ExpectSays(tools::kExitUnchecked, {"verify", sound},
             {"no content was checked"});
  Expect(tools::kExitDone, {"convert", sound, In("o.safetensors")});
  ExpectSays(tools::kExitDone, {"verify", In("o.safetensors")},
             {"2 digests", "no problem found"});
}

TEST_F(EdgeInputsTest, CodesWithScales) {
  const std::string path = Golden("edges/fp8");
  for (const std::string& verb : {"convert", "consolidate"}) {
    ExpectRefused(
        {verb, path, In("out"), "--to", "safetensors", "--cast", "bf16"},
        "--decode fp8-128 makes numbers of it first");
  }
  ExpectSays(tools::kExitDone, {"inspect", path},
             {"quantized  float8 with scales of blocks, 2 tensors"});
  ExpectSays(tools::kExitDone,
             {"convert", path, In("out"), "--to", "safetensors", "--decode",
              "fp8-128", "--cast", "bf16"},
             {"left out of config.json, because it is not so in the result: "
              "quantization_config"});
  ExpectSays(tools::kExitDone, {"inspect", In("out")}, {"bfloat16 1 "});
}

TEST_F(EdgeInputsTest, GitLfsPointer) {
  const std::string path = Golden("edges/lfs.safetensors");
  for (const Arguments& verb :
       {Arguments{"inspect", path}, Arguments{"verify", path},
        Arguments{"convert", path, In("o.pt")}}) {
    ExpectSays(tools::kExitSource, verb,
               {"a pointer of Git LFS", "`git lfs pull`"});
  }
}

TEST_F(EdgeInputsTest, UnreadableValues) {
  const std::string array = Golden("edges/object_array.pt");
  const std::string jagged = Golden("edges/jagged.pt");
  ExpectSays(tools::kExitDone, {"inspect", array}, {"v       not read: "});
  ExpectSays(tools::kExitDone, {"verify", array}, {"no problem found"});
  ExpectRefused({"convert", array, In("o.pt")},
                "v: numpy objects are not allowed");
  Expect(tools::kExitDone,
         {"convert", array, In("dropped.pt"), "--drop-unreadable"});
  ExpectSays(tools::kExitDone, {"inspect", jagged}, {"nt      not read: "});
  const Done done = Run({"convert", jagged, In("jagged.pt")});
  EXPECT_EQ(done.code, tools::kExitDone) << done.err;
  EXPECT_THAT(done.out, Not(HasSubstr("not checked")));
  Expect(tools::kExitDone, {"diff", jagged, In("jagged.pt")});
}

TEST_F(EdgeInputsTest, TensorsMissingFromTheIndex) {
  const std::string path = Golden("edges/surplus");
  for (const Arguments& verb :
       {Arguments{"inspect", path},
        Arguments{"convert", path, In("out"), "--to", "safetensors"}}) {
    ExpectSays(tools::kExitDone, verb,
               {"l1, l2, l3 and 1 other, which the index does not name"});
  }
  ExpectSays(tools::kExitUnchecked, {"verify", path},
             {"l1, l2, l3 and 1 other, which the index does not name"});
}

TEST_F(EdgeInputsTest, NameInTwoShards) {
  const std::string path = Golden("edges/in_two_files");
  const std::string says =
      "layers.0.w is in model-00001-of-00003.safetensors and in "
      "model-00002-of-00003.safetensors, and no index says which of them "
      "counts: --exclude leaves the name out";
  ExpectSays(tools::kExitDone, {"inspect", path}, {says});
  ExpectSays(tools::kExitDone, {"inspect", path, "--json"}, {says});
  ExpectSays(tools::kExitFound, {"verify", path}, {says});
  ExpectSays(tools::kExitFound, {"verify", path, "--json"}, {says});
  ExpectRefused({"convert", path, In("o.safetensors")}, says);
  Expect(tools::kExitDone,
         {"convert", path, In("o.safetensors"), "--exclude", "layers.0.w"});
}

TEST_F(EdgeInputsTest, PyTorchTutorialModel) {
  Expect(tools::kExitDone, {"convert", Golden("dialects/torch/tutorial.pt"),
                            In("o.safetensors"), "--part", "model"});
  ExpectSays(tools::kExitDone, {"inspect", In("o.safetensors")},
             {"tensors    2 ", "\nbias  ", "\nweight  "});
}

// The optimizer's numbers would go to other parameters of the same shape.
TEST_F(EdgeInputsTest, FlatRanksWithNumericNames) {
  const std::string path = Golden("dialects/fsdp1/ranks_local_ids_ws3");
  const std::string order = "--optimizer-names order";
  ExpectSays(tools::kExitDone, {"inspect", path},
             {"optimizer.state.0.exp_avg", order, "--like or --layout"});
  ExpectSays(tools::kExitDone, {"verify", path}, {order, "no problem found"});
  ExpectRefused({"convert", path, In("out")}, "flat parameters of FSDP1");
  ExpectSays(tools::kExitDone, {"convert", path, In("out"), "--allow-losses"},
             {order, "--like or --layout"});
  ExpectSays(tools::kExitDone, {"inspect", path, "--optimizer-names", "order"},
             {"optimizer.state.layers.0.up.weight.exp_avg "});
}

TEST_F(EdgeInputsTest, DeepSpeedWithoutOptimizer) {
  const std::string path = Golden("dialects/deepspeed/zero2_without_optim");
  for (const Arguments& verb :
       {Arguments{"inspect", path}, Arguments{"verify", path},
        Arguments{"convert", path, In("out")}}) {
    ExpectSays(tools::kExitDone, verb,
               {"*_optim_states.pt are missing: the weights have 16 "
                "bits, and there is no optimizer"});
  }
}

}  // namespace
}  // namespace dcp
