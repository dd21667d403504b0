"""What launches run in: images and environments, made from locked lists of packages."""
