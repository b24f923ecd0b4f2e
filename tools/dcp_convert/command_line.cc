#include "tools/dcp_convert/command_line.h"

namespace dcp::tools {

bool WritesToStandardOutput(const CommandLine& line) {
  return (line.verb == Verb::kConvert || line.verb == Verb::kConsolidate ||
          line.verb == Verb::kDcpToTorch) &&
         line.paths.size() == 2 && line.paths[1] == "-";
}

}  // namespace dcp::tools
