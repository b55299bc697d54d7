// Plug-ins that cannot be used, one for each way (WRONG_WAY).
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>

#include "offpath/plugin.h"

#define NO_SYMBOL 1
#define OTHER_VERSION 2
#define HANGS 3
#define CRASHES 4
#define RETURNS_NULL 5
#define THROWS 6
#define BAD_NAME 7

#if WRONG_WAY == HANGS || WRONG_WAY == CRASHES
namespace {
struct Constructed {
  Constructed() {
    if (WRONG_WAY == CRASHES) std::abort();
    for (;;) pause();
  }
} constructed;
}  // namespace
#endif

#if WRONG_WAY != NO_SYMBOL
extern "C" const ofp_plugin* offpath_plugin(void) {
  static const ofp_function functions[] = {
      {WRONG_WAY == BAD_NAME ? "two words" : "nothing", [](ofp_context*) { return int32_t{0}; }, nullptr}};
  static const ofp_plugin plugin = {WRONG_WAY == OTHER_VERSION ? 99u : OFP_PLUGIN_VERSION, sizeof(ofp_plugin), "wrong",
                                    1, functions};
  if (WRONG_WAY == THROWS) throw std::runtime_error("no licence");
  return WRONG_WAY == RETURNS_NULL ? nullptr : &plugin;
}
#else
extern "C" OFP_PLUGIN_EXPORT int something_else(void) { return 0; }
#endif
