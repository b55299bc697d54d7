// offpath-worker: started by offpath-agent for one plug-in; see docs/guides/plugins.md.
//
// A separate program, not a mode of the agent's: exec leaves nothing of the agent's memory in it, and it is linked with
// neither libarrow nor TLS, so it starts in a few milliseconds and a plug-in may bring its own libarrow.
#include <unistd.h>

#include <cstdio>

#include "plugin/worker.h"

int main(int argc, char** argv) {
  using namespace offpath;
  const auto options = plugin::read_worker_arguments({argv + 1, argv + argc});
  const Status status = options ? plugin::serve(*options) : Status(tl::unexpected<Failure>(options.error()));
  if (!status) std::fprintf(stderr, "offpath-worker: %s\n", status.error().message.c_str());
  std::fflush(stderr);
  // Destructors of a plug-in's static variables may hang or crash, so they are skipped.
  _exit(status ? 0 : 1);
}
