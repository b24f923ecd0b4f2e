// SPDX-License-Identifier: Apache-2.0
// Writes orders for order_parity_test.py. Each line of the input asks for one:
//   make KIND RANKS STAGES_PER_RANK MICROBATCHES   the order of a schedule
//   read PATH                                      the order in a CSV file
// The answer is CSV, or the error's first line, and then a line "end".

#include <cstdint>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "c10/util/Exception.h"
#include "fsdp/mesh/collective_errors.h"
#include "fsdp/parallel/pipeline/order/order_text.h"
#include "fsdp/parallel/pipeline/order/pipeline_order.h"

namespace fsdp::testing {
namespace {

std::string Answer(const std::string& word, std::istream& line) {
  if (word == "read") {
    std::string path;
    line >> path;
    std::ifstream file(path);
    return FormatOrderCsv(
        ParseOrderCsv(std::string(std::istreambuf_iterator<char>(file),
                                  std::istreambuf_iterator<char>())));
  }
  int64_t kind = 0;
  PipelineShape shape;
  line >> kind >> shape.num_ranks >> shape.stages_per_rank >>
      shape.num_microbatches;
  return FormatOrderCsv(
      MakePipelineOrder(static_cast<ScheduleKind>(kind), shape));
}

}  // namespace
}  // namespace fsdp::testing

int main() {
  std::string word;
  while (std::cin >> word) {
    std::string answer;
    const std::string error = fsdp::CatchErrorText(
        [&] { answer = fsdp::testing::Answer(word, std::cin); });
    std::cout << answer;
    if (!error.empty()) {
      std::cout << "error: " << error.substr(0, error.find('\n')) << "\n";
    }
    std::cout << "end\n";
  }
}
