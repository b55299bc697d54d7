// The functions that ADIOS2 looks up in liboffpath_adios2.so: <engine type="Plugin"> with PluginName=offpath and
// PluginLibrary=offpath_adios2. Read engine.h next, then about.h, the description of stored steps.
//
// ADIOS2 does not tell an engine of its plug-in interface the name that a program opens, so the parameter Pool names
// the stream; without it, the name of the IO does.
#include <dlfcn.h>

#include <stdexcept>

#include "engine.h"
#include "selection_of.h"

#if ADIOS2_USE_MPI
#error "ADIOS2 with MPI passes its communicator to EngineCreate, which this engine does not take"
#endif

using offpath::adios::make_reader;
using offpath::adios::make_writer;

namespace {

// A program may contain another ADIOS2, whose plug-in interface has other functions under the same names. It is refused
// here. `caller`: an address in the code that calls EngineCreate.
void check_caller(const void* caller) {
  Dl_info from{}, own{};
  if (dladdr(caller, &from) == 0 || dladdr(reinterpret_cast<const void*>(&adios2::core::InferSelection), &own) == 0 ||
      from.dli_fbase != own.dli_fbase)
    throw std::runtime_error(std::string("Offpath: the ADIOS2 of this program is in ") +
                             (from.dli_fname != nullptr ? from.dli_fname : "an unknown file") +
                             "; this engine is built for ADIOS2 " ADIOS2_VERSION_STR " in " +
                             (own.dli_fname != nullptr ? own.dli_fname : "a library that is not loaded") +
                             ", and works with that one alone");
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) adios2::plugin::PluginEngineInterface* EngineCreate(adios2::IO io,
                                                                                           const std::string& name,
                                                                                           const adios2::Mode mode) {
  check_caller(__builtin_return_address(0));
  const offpath::adios::Settings settings = offpath::adios::read_settings(io.Parameters(), io.Name());
  return (mode == adios2::Mode::Read ? make_reader(io, name, mode, settings) : make_writer(io, name, mode, settings))
      .release();
}

__attribute__((visibility("default"))) void EngineDestroy(adios2::plugin::PluginEngineInterface* engine) {
  delete engine;
}
}
