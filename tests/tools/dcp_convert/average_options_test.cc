// SPDX-License-Identifier: Apache-2.0
// `dcp-convert --average PATH=WEIGHT`, --source-weight and --window, with
// mappings, casts, workers, and checkpoints in other formats.
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "dcp/io/file_system.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/dcp/mapping/golden_models.h"
#include "tests/testing/status_matchers.h"
#include "tests/tools/dcp_convert/command_fixture.h"
#include "tools/dcp_convert/commands/commands.h"

namespace dcp {
namespace {

using ::dcp::testing::Arguments;
using ::dcp::testing::ArrayTensor;
using ::dcp::testing::CommandFixture;
using ::dcp::testing::GoldenPath;
using ::dcp::testing::TensorsIn;
using ::dcp::testing::With;
using ::testing::HasSubstr;
using ::testing::Not;

class AverageTest : public CommandFixture {
 protected:
  void SetUp() override {
    for (const char* name : {"a", "b", "c"}) {
      Expect(tools::kExitDone, {"convert", Golden(name), Path(name)});
    }
  }

  static std::string Golden(const std::string& name) {
    return GoldenPath("lenses", "mean_" + name + ".safetensors");
  }
  std::string Path(const std::string& name) const {
    return In(name + ".safetensors");
  }

  // Writes the mean of a and others to `name`, and returns the path.
  std::string Mean(const std::string& name, const Arguments& options) {
    Expect(tools::kExitDone, With({"convert", Path("a"), Path(name)}, options));
    return Path(name);
  }

  void ExpectSame(const std::string& a, const std::string& b) {
    Expect(tools::kExitDone, {"diff", a, b, "--tensors-only"});
  }

  static std::vector<float> Elements(const std::string& path) {
    const std::vector<ArrayTensor> tensors = TensorsIn(path);
    std::vector<float> elements(tensors[0].bytes.size() / sizeof(float));
    std::memcpy(elements.data(), tensors[0].bytes.data(),
                tensors[0].bytes.size());
    return elements;
  }
};

TEST_F(AverageTest, WeighsEachCheckpoint) {
  const std::string mean =
      Mean("mean", {"--average", Path("b") + "=3", "--average",
                    Path("c") + "=0.5", "--source-weight", "2"});
  const std::vector<float> a = Elements(Path("a"));
  const std::vector<float> b = Elements(Path("b"));
  const std::vector<float> c = Elements(Path("c"));
  const std::vector<float> got = Elements(mean);
  ASSERT_EQ(got.size(), a.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const double wanted = (2.0 * a[i] + 3.0 * b[i] + 0.5 * c[i]) / 5.5;
    EXPECT_NEAR(got[i], wanted, 1e-6) << i;
  }
}

TEST_F(AverageTest, LeavesOutCheckpointsWithoutWeight) {
  ExpectSame(Mean("only_b", {"--average", Path("b"), "--source-weight", "0"}),
             Path("b"));
  ExpectSame(Mean("only_a", {"--average", Path("b") + "=0"}), Path("a"));
  ExpectSame(Mean("without_c",
                  {"--average", Path("b"), "--average", Path("c") + "=0"}),
             Mean("with_b", {"--average", Path("b")}));
}

TEST_F(AverageTest, GivesWindowsTheirWeights) {
  const Arguments others = {"--average", Path("b"), "--average", Path("c")};
  const auto window = [&](const std::string& kind) {
    return Mean(kind, With({"--window", kind}, others));
  };
  const auto weights = [&](const std::string& a, const std::string& b,
                           const std::string& c) {
    return Mean("weights" + a,
                {"--source-weight", a, "--average", Path("b") + "=" + b,
                 "--average", Path("c") + "=" + c});
  };
  ExpectSame(window("equal"), Mean("plain", others));
  ExpectSame(window("linear"), weights("1", "2", "3"));
  ExpectSame(window("minus-sqrt"),
             weights("0.57735026918962573", "0.23914631173810008",
                     "0.18350341907227419"));
  EXPECT_EQ(Run({"diff", Path("linear"), Path("minus-sqrt")}).code,
            tools::kExitFound);
}

TEST_F(AverageTest, RoundsOnceToTheTypeOfACast) {
  const Arguments others = {"--average", Path("b") + "=0.3", "--average",
                            Path("c")};
  const std::string wide = Mean("wide", others);
  for (const char* type : {"bf16", "f16", "f64", "float8_e4m3fn"}) {
    const std::string name = std::string("cast_") + type;
    Expect(tools::kExitDone, {"convert", wide, Path(name), "--cast", type});
    ExpectSame(Mean("at_once_" + name, With({"--cast", type}, others)),
               Path(name));
  }
}

TEST_F(AverageTest, ReadsCheckpointsOfOtherMeshesAndFormats) {
  Expect(tools::kExitDone, {"convert", Path("b"), In("b_ranks"), "--to", "dcp",
                            "--mesh", "dp=3"});
  Expect(tools::kExitDone, {"convert", Path("c"), In("c.pt")});
  ExpectSame(Mean("others", {"--average", In("b_ranks") + "=2", "--average",
                             In("c.pt") + "=5"}),
             Mean("same", {"--average", Path("b") + "=2", "--average",
                           Path("c") + "=5"}));
}

TEST_F(AverageTest, IsTakenBeforeAMapping) {
  ASSERT_OK(WriteFile(*fs_, In("turn.yaml"), R"(tessera-mapping: 1
name: turn
sides:
  stored:
  turned:
rules:
- stored: {w: r c}
  turned: {v: c r}
)"));
  const Arguments map = {"--map-file", In("turn.yaml"), "--from-side",
                         "stored",     "--to-side",     "turned"};
  const Arguments others = {"--average", Path("b") + "=2", "--average",
                            Path("c")};
  Expect(tools::kExitDone,
         With({"convert", Mean("mean", others), Path("mapped")}, map));
  ExpectSame(Mean("at_once", With(others, map)), Path("mapped"));
  ExpectSame(Mean("narrow", With(With(others, map), {"--cast", "bf16"})), [&] {
    Expect(tools::kExitDone,
           {"convert", Path("mapped"), Path("cast"), "--cast", "bf16"});
    return Path("cast");
  }());
}

TEST_F(AverageTest, IsSharedByWorkers) {
  const Arguments others = {"--average", Path("b") + "=2", "--average",
                            Path("c")};
  const std::string alone = Mean("alone", others);
  for (const char* share : {"0/2", "1/2"}) {
    Expect(tools::kExitDone, With({"convert", Path("a"), In("shared"), "--to",
                                   "dcp", "--mesh", "dp=2", "--share", share},
                                  others));
  }
  ExpectSame(In("shared"), alone);
  Expect(tools::kExitDone, {"verify", In("shared")});
}

TEST_F(AverageTest, IsNotSharedWithOtherWeights) {
  const auto share = [&](const char* which, const std::string& weight) {
    return Run({"convert", Path("a"), In("shared"), "--to", "dcp", "--share",
                which, "--average", Path("b") + "=" + weight});
  };
  EXPECT_EQ(share("0/2", "2").code, tools::kExitDone);
  const auto other = share("1/2", "3");
  EXPECT_EQ(other.code, tools::kExitRefused);
  EXPECT_THAT(other.err, HasSubstr("belongs to workers with another plan"));
  EXPECT_EQ(share("1/2", "2").code, tools::kExitDone);
  EXPECT_TRUE(fs_->Stat(In("shared/.metadata")).ok());
}

TEST_F(AverageTest, TellsAWeightFromAPathWithAnEqualsSign) {
  const std::string lightning = In("epoch=1-step=100.safetensors");
  const std::string number = In("run=0.5");
  Expect(tools::kExitDone, {"convert", Path("b"), lightning});
  Expect(tools::kExitDone, {"convert", Path("b"), number, "--to", "dcp"});
  const std::string mean = Mean("mean", {"--average", Path("b")});
  const std::string weighted =
      Mean("weighted", {"--average", Path("b") + "=2"});
  ExpectSame(Mean("1", {"--average", lightning}), mean);
  ExpectSame(Mean("2", {"--average", lightning + "=2"}), weighted);
  // The whole is a path, and what is in front of "=" is none.
  ExpectSame(Mean("3", {"--average", number}), mean);
  ExpectSame(Mean("4", {"--average", number + "=2"}), weighted);
  // Both are paths.
  Expect(tools::kExitDone, {"convert", Path("b"), In("run"), "--to", "dcp"});
  ExpectRefused({"convert", Path("a"), In("x"), "--average", number},
                "has two meanings");
  ExpectSame(Mean("5", {"--average", number + "=1"}), mean);
}

TEST_F(AverageTest, SaysThatACheckpointCountsTwice) {
  const auto done = Run({"convert", Path("a"), Path("twice"), "--average",
                         Path("b"), "--average", Path("b")});
  EXPECT_EQ(done.code, tools::kExitDone);
  EXPECT_THAT(done.err, HasSubstr("b.safetensors is in the mean 2 times"));
  Expect(tools::kExitDone,
         {"diff", Path("twice"), Mean("two", {"--average", Path("b") + "=2"}),
          "--atol", "1e-6"});
  EXPECT_THAT(
      Run({"convert", Path("a"), Path("once"), "--average", Path("b")}).err,
      Not(HasSubstr("in the mean")));
}

TEST_F(AverageTest, RefusesWeightsByNameAndValue) {
  const auto refused = [&](const Arguments& options, const std::string& says) {
    ExpectRefused(With({"convert", Path("a"), In("x.safetensors")}, options),
                  says);
  };
  const std::string b = Path("b");
  refused({"--average", b + "=-1"}, "b.safetensors in the mean is -1");
  refused({"--average", b + "=nan"}, "in the mean is nan");
  refused({"--average", b + "=inf"}, "in the mean is inf");
  refused({"--average", b + "=0", "--source-weight", "0"},
          "the sum of the weights in the mean is 0");
  refused({"--average", b, "--source-weight", "-2"},
          "a.safetensors in the mean is -2");
  refused({"--average", b, "--source-weight", "much"}, "a number");
  refused({"--average", b, "--window", "cosine"},
          "equal, linear or minus-sqrt");
  refused({"--average", b + "=2", "--window", "equal"},
          "--window gives every checkpoint its weight");
  refused({"--average", b, "--source-weight", "1", "--window", "equal"},
          "--window gives every checkpoint its weight");
  refused({"--window", "equal"}, "--window requires --average");
  refused({"--source-weight", "2"}, "--source-weight requires --average");
  refused({"--average", In("none") + "=2"}, "none");
}

}  // namespace
}  // namespace dcp
