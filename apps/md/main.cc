// offpath-md: molecular dynamics with an agent beside it.
#include <cstdio>
#include <exception>
#include <memory>
#include <span>
#include <string_view>

#include "md/files/options.h"
#include "md/offload/model.h"
#include "md/offload/tdr.h"
#include "md/ranks/ranks.h"
#include "md/run.h"

int main(int argc, char** argv) {
  std::unique_ptr<md::Ranks> ranks;
  try {
    ranks = md::all_ranks(&argc, &argv);
    const std::string_view command = argc > 1 ? argv[1] : "";
    const std::span<char* const> after_command(argv + (argc > 1 ? 1 : 0),
                                               static_cast<std::size_t>(argc > 1 ? argc - 1 : argc));
    if (command == "model") return md::model(after_command, *ranks);
    if (command == "tdr") return md::tdr(after_command, *ranks);
    const md::Options options = md::read_options({argv, static_cast<std::size_t>(argc)});
    if (options.help) {
      if (ranks->rank() == 0) std::fputs(md::help_text().c_str(), stdout);
    } else {
      md::run(options.settings, *ranks);
    }
  } catch (const std::exception& error) {
    // All ranks find the same error in the input; the first one reports it.
    std::fflush(stdout);
    if (!ranks || ranks->rank() == 0 || ranks->count() == 1)
      std::fprintf(stderr, "offpath-md: %s\n", error.what());
    else
      std::fprintf(stderr, "offpath-md: rank %d: %s\n", ranks->rank(), error.what());
    if (ranks) ranks->give_up();
    return 1;
  }
  return 0;
}
