// Part of the software card (software_card.h): only the functions of this interface that doca_link uses.
#pragma once

#include <doca_error.h>
#include <cstdint>

extern "C" {
#define DOCA_DEVINFO_PCI_ADDR_SIZE 13
struct doca_dev;
struct doca_devinfo;
doca_error_t doca_devinfo_create_list(doca_devinfo*** list, std::uint32_t* count);
doca_error_t doca_devinfo_destroy_list(doca_devinfo** list);
doca_error_t doca_devinfo_get_pci_addr_str(const doca_devinfo* info, char* text);
doca_error_t doca_devinfo_is_equal_pci_addr(const doca_devinfo* info, const char* text, std::uint8_t* equal);
doca_error_t doca_dev_open(doca_devinfo* info, doca_dev** dev);
doca_error_t doca_dev_close(doca_dev* dev);
doca_devinfo* doca_dev_as_devinfo(const doca_dev* dev);
}
