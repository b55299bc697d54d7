// Part of the software card (software_card.h): only the functions of this interface that doca_link uses.
#pragma once

#include <cstdint>

extern "C" {
union doca_data {
  void* ptr;
  std::uint64_t u64;
};
using doca_notification_handle_t = int;
enum doca_access_flag {
  DOCA_ACCESS_FLAG_LOCAL_READ_ONLY = 0,
  DOCA_ACCESS_FLAG_LOCAL_READ_WRITE = 1 << 0,
  DOCA_ACCESS_FLAG_PCI_READ_ONLY = 1 << 4,
  DOCA_ACCESS_FLAG_PCI_READ_WRITE = 1 << 5,
};
}
