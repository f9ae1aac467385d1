# SPDX-License-Identifier: Apache-2.0
# Run by `cmake --install`, when the prefix is known: installs ${file}, a unit of systemd (.service.in, with the paths ${bin},
# ${helpers} and ${etc} in it) or a setting for administrators, which is kept where there is one.
if(CMAKE_INSTALL_PREFIX STREQUAL "/usr" OR CMAKE_INSTALL_PREFIX STREQUAL "/")
  set(etc /etc)  # as GNUInstallDirs has it
else()
  set(etc ${CMAKE_INSTALL_PREFIX}/etc)
endif()

if(file MATCHES "\\.service\\.in$")
  get_filename_component(name ${file} NAME_WLE)
  set(installed ${CMAKE_INSTALL_PREFIX}/lib/systemd/system/${name})
  message(STATUS "Installing: $ENV{DESTDIR}${installed}")
  configure_file(${file} $ENV{DESTDIR}${installed} @ONLY FILE_PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
  list(APPEND CMAKE_INSTALL_MANIFEST_FILES ${installed})
else()
  get_filename_component(name ${file} NAME)
  if(EXISTS $ENV{DESTDIR}${etc}/gpuloom/${name})
    message(STATUS "Kept: $ENV{DESTDIR}${etc}/gpuloom/${name}")
  else()
    file(INSTALL ${file} DESTINATION ${etc}/gpuloom)
  endif()
endif()
