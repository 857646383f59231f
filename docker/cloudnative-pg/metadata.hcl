// What CloudNativePG's build of extension images (postgres-extensions-containers) asks of an extension.
metadata = {
  name                     = "gpuann"
  sql_name                 = "gpuann"
  image_name               = "gpuann"
  licenses                 = ["PostgreSQL"]
  shared_preload_libraries = ["gpuann"]
  postgresql_parameters    = {}
  extension_control_path   = []
  dynamic_library_path     = []
  ld_library_path          = []
  bin_path                 = []
  env                      = {}
  auto_update_os_libs      = false
  required_extensions      = ["pgvector"]
  create_extension         = true

  versions = {
    trixie = {
      "18" = {
        package = "0.3.0"
        sql     = "0.3"
      }
    }
  }
}
