// The reading and the writing engine, as ADIOS2 calls them, and the access to variables that both need.
#pragma once

#include <adios2/plugin/PluginEngineInterface.h>

#include <memory>
#include <string>

#include "settings.h"
#include "types.h"

static_assert(ADIOS2_PLUGIN_ENGINE_INTERFACE == 2,
              "this engine is written for version 2 of ADIOS2's plug-in interface");

namespace offpath::adios {

[[nodiscard]] std::unique_ptr<::adios2::plugin::PluginEngineInterface> make_writer(::adios2::IO io,
                                                                                   const std::string& name,
                                                                                   ::adios2::Mode mode,
                                                                                   const Settings& settings);
[[nodiscard]] std::unique_ptr<::adios2::plugin::PluginEngineInterface> make_reader(::adios2::IO io,
                                                                                   const std::string& name,
                                                                                   ::adios2::Mode mode,
                                                                                   const Settings& settings);

[[nodiscard]] inline std::string row_of(std::uint64_t step) { return "step" + std::to_string(step); }
[[nodiscard]] inline std::string about_of(std::uint32_t rank) { return "rank" + std::to_string(rank) + ".about"; }

}  // namespace offpath::adios
