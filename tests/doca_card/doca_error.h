// Part of the software card (software_card.h): only the functions of this interface that doca_link uses.
#pragma once

extern "C" {
enum doca_error_t {
  DOCA_SUCCESS = 0,
  DOCA_ERROR_NOT_PERMITTED = 2,
  DOCA_ERROR_IN_USE = 3,
  DOCA_ERROR_NOT_SUPPORTED = 4,
  DOCA_ERROR_INVALID_VALUE = 6,
  DOCA_ERROR_NO_MEMORY = 7,
  DOCA_ERROR_NOT_FOUND = 16,
  DOCA_ERROR_IO_FAILED = 17,
  DOCA_ERROR_BAD_STATE = 18,
  DOCA_ERROR_DRIVER = 21,
  DOCA_ERROR_IN_PROGRESS = 26,
};
const char* doca_error_get_descr(doca_error_t error);
}
