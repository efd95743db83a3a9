//! The model is a logical disk with versions.

use dendro_disk::model::ModelDisk;

dendro_disk::versions_conformance_tests!(|| Box::new(ModelDisk::new(None)));
